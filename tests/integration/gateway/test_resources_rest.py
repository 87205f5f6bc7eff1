"""The resource API over plain HTTPS: status codes, garbage, name reuse, deletion, secrets that stay secret."""

import base64
import hashlib
import json
import threading
from datetime import UTC, datetime, timedelta

import pytest

from services.gateway.domain.auth import token_hash
from tests.support.gateway import ADMIN_TOKEN
from tests.support.wait import eventually_sync

MAPS = "/api/v1/namespaces/default/configmaps"
KEYS = "/apis/gpubus.io/v1/namespaces/default/apikeys"


def named(name, **more):
    return {"metadata": {"name": name}, **more}


def bomb():
    levels = ["a0: &a0 x"] + [f"a{n}: &a{n} [{','.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 10)]
    return "\n".join(levels).encode()


@pytest.mark.parametrize(
    ("content", "body", "status", "reason"),
    [
        ("application/json", b"", 400, "BadRequest"),
        ("application/json", b"{", 400, "BadRequest"),
        ("application/json", b"[]", 400, "BadRequest"),
        ("application/json", b'"x"', 400, "BadRequest"),
        ("application/json", b"null", 400, "BadRequest"),
        ("application/json", b'{"metadata": {"name": "a", "name": "b"}}', 400, "BadRequest"),
        ("application/json", b'{"metadata": {"name": "a"}, "data": {"x": NaN}}', 400, "BadRequest"),
        ("application/json", b'{"metadata": {"name": "a"}, "data": {"x": "\\ud800"}}', 400, "BadRequest"),
        ("application/json", b'{"metadata": {"name": "\xff"}}', 400, "BadRequest"),
        ("application/json", b'{"a":' * 100_000, 400, "BadRequest"),
        ("application/json", b'{"metadata": {"name": "a"}, "data": {"x": 99999999999999999999}}', 422, "Invalid"),
        ("application/json", b'{"metadata": {"name": "a"}, "bogus": 1}', 400, "BadRequest"),
        ("application/json", b'{"metadata": {"name": "a"}, "data": {"x": 1}}', 400, "BadRequest"),
        ("application/json", b'{"metadata": []}', 400, "BadRequest"),
        ("application/json", b'{"metadata": {"name": "a"}, "apiVersion": "v2"}', 400, "BadRequest"),
        ("application/json", b'{"metadata": {"name": "a", "namespace": "other"}}', 400, "BadRequest"),
        ("application/json", b"{}", 422, "Invalid"),
        ("application/json", b'{"metadata": {"name": ""}}', 422, "Invalid"),
        ("application/json", b'{"metadata": {"name": "-a"}}', 422, "Invalid"),
        ("application/json", b'{"metadata": {"name": "A"}}', 422, "Invalid"),
        ("application/json", b'{"metadata": {"name": "a b"}}', 422, "Invalid"),
        ("application/json", b'{"metadata": {"name": "a\\n"}}', 422, "Invalid"),
        ("application/json", '{"metadata": {"name": "qwen-模型"}}'.encode(), 422, "Invalid"),
        ("application/json", b'{"metadata": {"name": "a", "labels": {"x": "' + b"v" * 64 + b'"}}}', 422, "Invalid"),
        ("application/json", b'{"metadata": {"name": "a", "labels": {"a/b/c": "v"}}}', 422, "Invalid"),
        ("application/json", b'{"metadata": {"name": "a", "resourceVersion": "5"}}', 422, "Invalid"),
        ("application/json", b'{"metadata": {"name": "a"}, "data": {"x": "' + b"v" * (4 << 20) + b'"}}', 413, "RequestEntityTooLarge"),
        ("application/yaml", bomb(), 400, "BadRequest"),
        ("application/yaml", b"[" * 100_000, 400, "BadRequest"),
        ("application/yaml", b"a: &x [*x]", 400, "BadRequest"),
        ("application/yaml", b"metadata: {name: a}\ndata: {x: on}", 400, "BadRequest"),
        ("application/yaml", b"metadata:\n  name: a\n  name: b", 400, "BadRequest"),
        ("application/yaml", b"metadata: {name: !!python/object:os.system a}", 400, "BadRequest"),
        ("application/yaml", b"metadata: {name: a}\n---\nmetadata: {name: b}", 400, "BadRequest"),
        ("text/plain", b"metadata: {name: a}", 415, "UnsupportedMediaType"),
        ("application/vnd.kubernetes.protobuf", b"k8s\x00\xff", 400, "BadRequest"),
    ],
    ids=lambda value: str(value)[:40],
)  # fmt: skip
def test_garbage_is_refused_and_stores_nothing(gateway, content, body, status, reason):
    before = gateway.call("GET", MAPS).body["metadata"]["resourceVersion"]

    answer = gateway.call("POST", MAPS, body, content=content)

    assert (answer.status, answer.reason) == (status, reason)
    assert answer.body["kind"] == "Status"
    assert answer.body["status"] == "Failure"
    assert answer.body["message"]
    assert "Traceback" not in answer.raw.decode()
    assert gateway.call("GET", MAPS).body["metadata"]["resourceVersion"] == before


def test_large_yaml_holds_nobody_up(gateway):
    large = b"metadata: {name: large}\ndata:\n" + b"".join(b"  k%d: 'v'\n" % n for n in range(60_000))
    slow = threading.Thread(target=lambda: gateway.call("POST", MAPS, large, content="application/yaml"))
    slow.start()

    quick = [gateway.call("GET", "/livez", token=None).status for _ in range(20)]
    slow.join()

    assert quick == [200] * 20
    gateway.call("DELETE", f"{MAPS}/large")


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/nonsense", 404), ("GET", "/api/v1/nonsense", 404), ("GET", "/apis/nope.io/v1/x", 404), ("PUT", MAPS, 405),
        ("POST", f"{MAPS}/x", 405), ("POST", "/api/v1/configmaps", 405), ("POST", "/api/v1/namespaces/default/events", 405),
        ("PATCH", MAPS, 405), ("HEAD", "/version", 405), ("POST", "/version", 405), ("POST", "/apis/worker.gpustack.ai/v1/devices", 405),
        ("GET", "/api/v1/namespaces/default/configmaps/a%2fb", 400), ("GET", "/api/v1/namespaces/default/configmaps/..", 400),
        ("GET", f"{MAPS}?limit=x", 400), ("GET", f"{MAPS}?labelSelector=(", 400), ("GET", f"{MAPS}?fieldSelector=a=b", 400),
        ("GET", f"{MAPS}?continue=xx", 400), ("GET", f"{MAPS}?watch=perhaps", 400), ("DELETE", f"{MAPS}/nope", 404),
        ("PUT", f"{MAPS}/nope/status", 403), ("GET", f"{MAPS}/nope/scale", 404), ("GET", "/openapi/v3/apis/nope/v1", 404),
        ("GET", f"{MAPS}?resourceVersion=99999999999999999", 410),
    ],
)  # fmt: skip
def test_wrong_addresses_and_parameters_have_their_codes(gateway, method, path, status):
    answer = gateway.call(method, path, {} if method in {"PUT", "POST", "PATCH"} else None)

    assert answer.status == status
    if status == 405:
        assert answer.headers["Allow"]


def test_unlike_media_types_are_refused(gateway):
    assert gateway.call("GET", MAPS, accept="text/html").status == 406
    assert gateway.call("PATCH", f"{MAPS}/x", {}, content="application/strategic-merge-patch+xml").status == 415
    assert gateway.call("PATCH", f"{MAPS}/x", {}, content="application/json").status == 415


@pytest.mark.parametrize(
    "token", [None, "wrong-0123456789abcdef", "gb_" + "0" * 32, "x", ADMIN_TOKEN + "x", ADMIN_TOKEN[:-1]]
)
def test_wrong_keys_are_unauthorised_and_not_echoed(gateway, token):
    answer = gateway.call("GET", "/api", token=token)

    assert answer.status == 401
    assert answer.reason == "Unauthorized"
    if token and len(token) > 8:
        assert not any(token[n : n + 8] in answer.raw.decode() for n in range(len(token) - 7))
        assert token not in gateway.child.log_path.read_text()


def test_keys_in_other_places(gateway):
    assert gateway.call("GET", "/api", token=None, headers={"x-api-key": ADMIN_TOKEN}).status == 200
    assert gateway.call("GET", "/api", token=None, headers={"authorization": f"bearer {ADMIN_TOKEN}"}).status == 200
    assert gateway.call("GET", f"/api?token={ADMIN_TOKEN}", token=None).status == 401
    assert gateway.call("GET", "/api", headers={"x-api-key": "another-0123456789"}).status == 401


def test_health_and_version_are_open(gateway):
    assert [
        gateway.call("GET", path, token=None).status
        for path in ("/livez", "/readyz", "/healthz", "/version", "/metrics")
    ] == [200] * 5
    assert gateway.call("GET", "/readyz", token=None).body["checks"]["namespaces"] is True


def test_request_id_is_echoed_or_replaced(gateway):
    assert gateway.call("GET", "/version", headers={"X-Request-Id": "req-1_A.b"}).headers["x-request-id"] == "req-1_A.b"
    assert (
        gateway.call("GET", "/version", headers={"X-Request-Id": "id%0aERROR fake"})
        .headers["x-request-id"]
        .startswith("req-")
    )
    assert max(map(len, gateway.child.log_path.read_text().splitlines())) < 8192


def test_reads_see_writes(gateway):
    for number in range(30):
        made = gateway.call("POST", MAPS, named(f"see-{number}"))
        assert made.status == 201
        assert gateway.call("GET", f"{MAPS}/see-{number}").status == 200
        assert gateway.call("DELETE", f"{MAPS}/see-{number}").status == 200
        assert gateway.call("GET", f"{MAPS}/see-{number}").status == 404


def test_taken_name_says_which(gateway):
    gateway.call("POST", MAPS, named("taken"))

    answer = gateway.call("POST", MAPS, named("taken"))

    assert (answer.status, answer.reason) == (409, "AlreadyExists")
    assert answer.body["details"] == {"name": "taken", "kind": "configmaps", "group": ""}


def test_idempotency_key_makes_a_retry_the_same_write(gateway):
    headers = {"Idempotency-Key": "once"}
    first, again = (gateway.call("POST", MAPS, named("once"), headers=headers) for _ in range(2))
    other = gateway.call("POST", MAPS, named("once"), headers={"Idempotency-Key": "twice"})
    changed = gateway.call("POST", MAPS, named("once", data={"a": "1"}), headers=headers)

    assert first.body["metadata"]["uid"] == again.body["metadata"]["uid"]
    assert first.status == 201
    assert (other.status, changed.status) == (409, 409)


def test_name_can_be_used_again_at_once(gateway):
    uids = set()
    for _ in range(20):
        made = gateway.call("POST", MAPS, named("again"))
        assert made.status == 201, made.raw
        uids.add(made.body["metadata"]["uid"])
        gateway.call("DELETE", f"{MAPS}/again")

    assert len(uids) == 20


def test_finalizer_holds_an_object_and_its_name(gateway):
    gateway.call("POST", MAPS, {"metadata": {"name": "held", "finalizers": ["my/own"]}})

    asked = gateway.call("DELETE", f"{MAPS}/held")
    taken = gateway.call("POST", MAPS, named("held"))
    assert asked.status == 200
    assert asked.body["metadata"]["deletionTimestamp"]
    assert taken.status == 409
    assert "being deleted" in taken.body["message"]

    gateway.call("PATCH", f"{MAPS}/held", {"metadata": {"finalizers": None}}, content="application/merge-patch+json")
    assert gateway.call("GET", f"{MAPS}/held").status == 404
    assert gateway.call("POST", MAPS, named("held")).status == 201


def test_stale_revision_and_other_uid_are_conflicts(gateway):
    made = gateway.call("POST", MAPS, named("stale")).body
    gateway.call("PATCH", f"{MAPS}/stale", {"data": {"a": "1"}}, content="application/merge-patch+json")

    answers = [
        gateway.call("PUT", f"{MAPS}/stale", {**made, "data": {"b": "2"}}),
        gateway.call(
            "PATCH",
            f"{MAPS}/stale",
            {"metadata": {"resourceVersion": made["metadata"]["resourceVersion"]}, "data": {}},
            content="application/merge-patch+json",
        ),
        gateway.call("PUT", f"{MAPS}/stale", {"metadata": {"name": "stale", "uid": "other"}}),
        gateway.call("DELETE", f"{MAPS}/stale", {"preconditions": {"uid": "other"}}),
        gateway.call("DELETE", f"{MAPS}/stale", {"preconditions": {"resourceVersion": "1"}}),
    ]

    assert [(a.status, a.reason) for a in answers] == [(409, "Conflict")] * 5
    assert gateway.call("GET", f"{MAPS}/stale").body["data"] == {"a": "1"}


def test_put_without_a_revision_wins(gateway):
    gateway.call("POST", MAPS, named("last", data={"a": "1"}))

    assert gateway.call("PUT", f"{MAPS}/last", named("last", data={"b": "2"})).status == 200
    assert gateway.call("GET", f"{MAPS}/last").body["data"] == {"b": "2"}


def test_status_and_system_metadata_that_users_send_are_dropped(gateway):
    sent = {
        "metadata": {
            "name": "own",
            "uid": "mine",
            "generation": 7,
            "creationTimestamp": "2001-01-01T00:00:00Z",
            "selfLink": "/x",
        },
        "status": {"phase": "Fine"},
    }

    made = gateway.call("POST", MAPS, sent).body

    assert made["metadata"]["uid"] != "mine"
    assert made["metadata"]["generation"] == 1
    assert not made["metadata"]["creationTimestamp"].startswith("2001")
    assert "status" not in made


def test_unknown_fields_can_be_forgiven_with_a_warning(gateway):
    answer = gateway.call("POST", f"{MAPS}?fieldValidation=Warn", named("warn", bogus=1))

    assert answer.status == 201
    assert 'unknown field \\"bogus\\"' in answer.headers["Warning"]
    assert "bogus" not in answer.body


def test_patches_of_every_kind(gateway):
    gateway.call("POST", MAPS, named("patch", data={"a": "1", "b": "2"}))

    def patched(body, content):
        answer = gateway.call("PATCH", f"{MAPS}/patch?fieldManager=t&force=true", body, content=content)
        return answer.body.get("data") if answer.status == 200 else answer.status

    assert patched({"data": {"a": None, "c": "3"}}, "application/merge-patch+json") == {"b": "2", "c": "3"}
    assert patched([{"op": "move", "from": "/data/b", "path": "/data/d"}], "application/json-patch+json") == {
        "c": "3",
        "d": "2",
    }
    assert patched([{"op": "test", "path": "/data/c", "value": "9"}], "application/json-patch+json") == 422
    assert patched({"data": {"$patch": "replace", "e": "5"}}, "application/strategic-merge-patch+json") == {"e": "5"}
    assert patched(named("patch", data={"f": "6"}), "application/apply-patch+yaml") == {"e": "5", "f": "6"}
    assert patched({"metadata": {"name": "other"}}, "application/merge-patch+json") == 400
    assert patched({"status": {"x": 1}}, "application/merge-patch+json") == {"e": "5", "f": "6"}
    assert patched([{"op": "replace", "path": "", "value": 5}], "application/json-patch+json") == 422
    assert patched({"data": {"a": 5}}, "application/merge-patch+json") == 400
    assert patched(b"5", "application/merge-patch+json") == 400


def test_apply_needs_a_manager_and_no_ownership_of_its_own(gateway):
    path, content = f"{MAPS}/mgr", "application/apply-patch+yaml"

    assert gateway.call("PATCH", path, named("mgr"), content=content).status == 422
    sent = {"metadata": {"name": "mgr", "managedFields": [{"manager": "x"}]}}
    assert gateway.call("PATCH", f"{path}?fieldManager=m", sent, content=content).status == 400
    assert (
        gateway.call(
            "PATCH", f"{path}?fieldManager=m", b"metadata: {name: mgr}\ndata: {a: 'x'}\n", content=content
        ).status
        == 201
    )


def test_concurrent_patches_all_count(gateway):
    gateway.call("POST", MAPS, named("busy"))
    statuses = []

    def patch(number):
        answer = gateway.call(
            "PATCH", f"{MAPS}/busy", {"data": {f"k{number}": "1"}}, content="application/merge-patch+json"
        )
        statuses.append(answer.status)

    threads = [threading.Thread(target=patch, args=(n,)) for n in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert statuses == [200] * 6
    assert len(gateway.call("GET", f"{MAPS}/busy").body["data"]) == 6


def test_lists_are_one_snapshot_over_all_pages(gateway):
    gateway.kubectl("create", "ns", "pages")
    path = "/api/v1/namespaces/pages/configmaps"
    for number in range(25):
        gateway.call(
            "POST",
            path,
            named(f"p{number:02}", metadata={"name": f"p{number:02}", "labels": {"half": str(number % 2)}}),
        )

    first = gateway.call("GET", f"{path}?limit=10&labelSelector=half=0").body
    gateway.call("DELETE", f"{path}/p24")
    gateway.call("POST", path, {"metadata": {"name": "p01a", "labels": {"half": "0"}}})
    second = gateway.call("GET", f"{path}?limit=10&labelSelector=half=0&continue={first['metadata']['continue']}").body

    names = [item["metadata"]["name"] for item in first["items"] + second["items"]]
    assert names == [f"p{number:02}" for number in range(0, 25, 2)]
    assert first["metadata"]["remainingItemCount"] == 3
    assert first["metadata"]["resourceVersion"] == second["metadata"]["resourceVersion"]
    assert "continue" not in second["metadata"]
    gone = base64.urlsafe_b64encode(b"0000000000000000:10").decode()
    assert gateway.call("GET", f"{path}?limit=10&continue={gone}").status == 410


def test_collection_is_deleted_by_selector(gateway):
    gateway.kubectl("create", "ns", "sweep")
    path = "/api/v1/namespaces/sweep/configmaps"
    for number in range(6):
        gateway.call("POST", path, {"metadata": {"name": f"x{number}", "labels": {"odd": str(number % 2)}}})

    assert gateway.call("DELETE", f"{path}?labelSelector=odd=1&dryRun=All").status == 200
    assert len(gateway.call("GET", path).body["items"]) == 6
    gone = gateway.call("DELETE", f"{path}?labelSelector=odd=1")

    assert len(gone.body["items"]) == 3
    assert [item["metadata"]["name"] for item in gateway.call("GET", path).body["items"]] == ["x0", "x2", "x4"]


def test_tables_and_metadata_alone_are_served(gateway):
    gateway.call("POST", MAPS, named("table", data={"a": "1"}))

    rows = gateway.call("GET", f"{MAPS}/table", accept="application/json;as=Table;v=v1;g=meta.k8s.io").body
    only = gateway.call(
        "GET", f"{MAPS}/table", accept="application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io"
    ).body

    assert [c["name"] for c in rows["columnDefinitions"]] == ["Name", "Data", "Age"]
    assert rows["rows"][0]["cells"][:2] == ["table", 1]
    assert only["kind"] == "PartialObjectMetadata"
    assert "data" not in only


def test_key_is_shown_once_and_its_hash_never(gateway):
    made = gateway.call("POST", KEYS, {"metadata": {"name": "once"}, "spec": {"role": "viewer"}}).body
    token = made["status"]["token"]

    assert token.startswith("gb_")
    assert made["spec"]["prefix"] == token[:7]
    read = gateway.call("GET", f"{KEYS}/once").raw.decode() + gateway.call("GET", KEYS).raw.decode()
    assert token not in read
    assert '"hash"' not in read
    kept = gateway.redis.ask("HGET", "{gpubus}:doc:ApiKey:default/once", "body").decode()
    assert token not in kept
    assert '"hash":"' in kept
    assert token not in gateway.child.log_path.read_text()
    assert (gateway.dir / "run" / "key-secret").stat().st_mode & 0o777 == 0o600


def test_key_opens_the_door_until_it_is_revoked(gateway):
    for number in range(5):
        token = gateway.new_key(f"door-{number}", "viewer")
        assert gateway.call("GET", MAPS, token=token).status == 200
        gateway.call("DELETE", f"{KEYS}/door-{number}")
        assert gateway.call("GET", MAPS, token=token).status == 401


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("deleted", None),
        ("disabled", {"disabled": True}),
        ("expired", {"expires": "2001-01-01T00:00:00Z"}),
        ("lowered", {"role": "model-user"}),
    ],
)
def test_watch_ends_with_the_rights_it_was_opened_with(gateway, name, change):
    token = gateway.new_key(name, "viewer")

    with gateway.watch(f"{MAPS}?watch=true", token=token) as watch:
        gateway.call("PATCH", f"{KEYS}/{name}", {"spec": {"description": "x"}}, content="application/merge-patch+json")
        gateway.call("POST", MAPS, named(f"before-{name}"))
        eventually_sync(lambda: ("ADDED", f"before-{name}") in watch.types())
        if change is None:
            gateway.call("DELETE", f"{KEYS}/{name}")
        else:
            gateway.call("PATCH", f"{KEYS}/{name}", {"spec": change}, content="application/merge-patch+json")
        eventually_sync(lambda: watch.ended)

    assert watch.events[-1]["type"] == "ERROR"
    assert watch.events[-1]["object"]["code"] == 401


def test_watch_ends_when_its_key_expires(gateway):
    soon = (datetime.now(UTC) + timedelta(seconds=2)).isoformat()
    made = gateway.call("POST", KEYS, named("soon", spec={"role": "viewer", "expires": soon})).body

    with gateway.watch(f"{MAPS}?watch=true", token=made["status"]["token"]) as watch:
        eventually_sync(lambda: watch.ended)

    assert watch.events[-1]["object"]["code"] == 401
    assert gateway.call("GET", MAPS, token=made["status"]["token"]).status == 401


def test_creation_of_a_key_warns_that_it_is_shown_once(gateway):
    made = gateway.call("POST", KEYS, named("warned"))
    read = gateway.call(
        "PATCH", f"{KEYS}/warned", {"metadata": {"labels": {"a": "b"}}}, content="application/merge-patch+json"
    )

    assert "status.token" in made.headers["Warning"]
    assert made.body["status"]["token"] not in made.headers["Warning"]
    assert read.headers["Warning"] is None


def test_models_of_a_key_are_checked(gateway):
    made = gateway.call("POST", KEYS, named("models", spec={"models": ["m", " "]}))

    assert made.status == 422
    assert made.fields == ["spec.models[1]"]


def test_hashes_depend_on_the_servers_own_secret(gateway):
    """A copied store without the secret opens nothing: the same token has another hash elsewhere."""
    token = gateway.new_key("keyed", "viewer")
    reply = gateway.redis.ask("HGET", "{gpubus}:doc:ApiKey:default/keyed", "body")
    kept = json.loads(reply.partition(b"\r\n")[2])["spec"]["hash"]
    secret = (gateway.dir / "run" / "key-secret").read_bytes().strip()

    assert kept == token_hash(secret, token)
    assert kept != hashlib.sha256(token.encode()).hexdigest()
    assert kept != token_hash(b"x" * 32, token)


def test_key_that_is_disabled_or_expired_is_refused(gateway):
    token = gateway.new_key("off", "viewer")
    gateway.call("PATCH", f"{KEYS}/off", {"spec": {"disabled": True}}, content="application/merge-patch+json")
    assert gateway.call("GET", MAPS, token=token).status == 401
    gateway.call(
        "PATCH",
        f"{KEYS}/off",
        {"spec": {"disabled": False, "expires": "2001-01-01T00:00:00Z"}},
        content="application/merge-patch+json",
    )
    assert gateway.call("GET", MAPS, token=token).status == 401
    gateway.call("PATCH", f"{KEYS}/off", {"spec": {"expires": None}}, content="application/merge-patch+json")
    assert gateway.call("GET", MAPS, token=token).status == 200


def test_key_can_be_replaced_as_it_was_read(gateway):
    token = gateway.new_key("kept", "viewer")
    read = gateway.call("GET", f"{KEYS}/kept").body

    assert gateway.call("PUT", f"{KEYS}/kept", {**read, "spec": {**read["spec"], "description": "x"}}).status == 200
    assert gateway.call("GET", MAPS, token=token).status == 200


@pytest.mark.parametrize("spec", [{"hash": "f" * 64}, {"prefix": "gb_"}])
def test_senders_do_not_choose_keys(gateway, spec):
    assert gateway.call("POST", KEYS, {"metadata": {"name": "mine"}, "spec": spec}).status == 422


def test_retried_creation_of_a_key_gets_the_same_token(gateway):
    headers = {"Idempotency-Key": "key-once"}
    first, again = (
        gateway.call("POST", KEYS, named("retry"), headers=headers).body["status"]["token"] for _ in range(2)
    )

    assert first == again


@pytest.mark.parametrize(
    "value", ["http://169.254.169.254/", "http://user:pw@hub/", "gopher://x", "https://hub/\r\nX: 1"]
)
def test_hub_endpoint_that_points_inside_is_refused(gateway, value):
    path = "/apis/gpustack.ai/v1/namespaces/gpustack-system/settings/model-artifact-huggingface-endpoint"

    answer = gateway.call("PATCH", path, {"spec": {"value": value}}, content="application/merge-patch+json")

    assert answer.status == 422
    assert answer.fields == ["spec.value"]


def test_deleted_setting_comes_back_with_its_default(gateway):
    path = "/apis/gpustack.ai/v1/namespaces/gpustack-system/settings/model-store-peer-sync"
    gateway.call("PATCH", path, {"spec": {"value": "false"}}, content="application/merge-patch+json")
    assert gateway.call("GET", path).body["status"]["value"] == "false"

    gateway.call("DELETE", path)

    eventually_sync(lambda: gateway.call("GET", path).status == 200, timeout=10)
    assert gateway.call("GET", path).body["spec"]["value"] == "true"


def test_outcome_of_a_write_can_be_asked_for(gateway):
    made = gateway.call("POST", MAPS, named("asked"), headers={"Idempotency-Key": "asked"})
    assert made.status == 201
    log = [line for line in gateway.child.logged("message_handled") if line.get("handler") == "write_object"]

    answer = gateway.call("GET", f"/apis/gpubus.io/v1/operations/{log[-1]['correlation_id']}")

    assert answer.status == 200
    assert answer.body["object"]["name"] == "asked"
    assert gateway.call("GET", "/apis/gpubus.io/v1/operations/nope").status == 404


def test_metrics_count_requests(gateway):
    text = gateway.call("GET", "/metrics", token=None).raw.decode()

    assert 'gpubus_api_requests_total{code="201",kind="configmaps",verb="create"}' in text
    assert json.dumps(ADMIN_TOKEN) not in text


@pytest.mark.parametrize(("server", "check"), [("nats", "bus"), ("redis", "store")])
def test_without_its_servers_the_gateway_reads_and_refuses_to_write(gateway, server, check):
    gateway.call("POST", MAPS, named(f"without-{server}"))
    getattr(gateway, server).stop()
    try:
        write = gateway.call(
            "PATCH", f"{MAPS}/without-{server}", {"data": {"a": "1"}}, content="application/merge-patch+json"
        )

        assert (write.status, write.reason) == (503, "ServiceUnavailable")
        assert write.headers["Retry-After"]
        assert gateway.call("GET", f"{MAPS}/without-{server}").status == 200
        assert f"without-{server}" in [i["metadata"]["name"] for i in gateway.call("GET", MAPS).body["items"]]
        assert gateway.call("GET", "/livez").status == 200
        ready = gateway.call("GET", "/readyz")
        assert (ready.status, ready.body["checks"][check]) == (503, False)
    finally:
        getattr(gateway, server).start()
    eventually_sync(lambda: gateway.call("GET", "/readyz").status == 200, timeout=30)
    eventually_sync(lambda: gateway.call("POST", MAPS, named(f"after-{server}")).status in {201, 409}, timeout=30)
