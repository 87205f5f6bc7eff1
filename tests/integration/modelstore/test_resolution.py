"""From a source to a commit and a manifest, once: reasons, retries, copies of the controller, kills."""

from __future__ import annotations

import asyncio
import hashlib
import json
import signal
import ssl
import subprocess
import threading

from services.modelstore.domain.revision import Listing, resolve
from shared.manifest import ManifestFile
from shared.resources.artifact import ModelArtifactSpec
from tests.integration.modelstore import origin as tricks
from tests.integration.modelstore.conftest import content
from tests.integration.modelstore.origin import Origin
from tests.support.wait import eventually

FILES = {"config.json": b"{}", "model.gguf": content("m", 5000), "sub/a.bin": content("a", 2000)}


def digest_of(files):
    listed = [
        ManifestFile(path, len(data), "sha256", hashlib.sha256(data).hexdigest())
        if len(data) >= tricks.LARGE
        else ManifestFile(path, len(data), "gitsha1", hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest())
        for path, data in files.items()
    ]
    spec = ModelArtifactSpec.model_validate({"source": {"huggingFace": {"repository": "o/n"}}})
    return resolve(spec, Listing("c" * 40, tuple(listed))).manifest.digest


async def test_an_artifact_is_resolved_once_and_the_source_asked_once(house):
    commit = house.origin.add("o/n", FILES)
    controller = house.controller().start().ready()

    await house.artifact("m", "o/n")
    digest = await house.resolved("m")

    artifact = await house.read("m")
    told = artifact.status.resolved
    assert digest == digest_of(FILES)
    assert (told.revision, told.file_count, told.size_bytes) == (commit, 3, 7002)
    assert told.endpoint == house.origin.url
    await eventually(lambda: house.fact_count("resolved", "m", ""))
    house.origin.add("o/n", {"other": b"1"})  # the branch moves on
    controller.end()
    house.controller("modelstore-2").start().ready()
    await house.artifact("later", "o/n")
    assert await house.resolved("later") != digest
    assert await house.resolved("m") == digest
    assert await house.fact_count("resolved", "m", "") == 1
    asked = [a.path for a in house.origin.asked]
    assert len([path for path in asked if "/revision/" in path]) == 2
    assert len([path for path in asked if f"/tree/{commit}" in path]) == 1


async def test_refusals_are_told_apart_and_no_message_holds_the_token(house, tmp_path):
    """One artifact for each answer of a hub, all at once."""
    origin, expected = house.origin, {}
    token = "hf_verysecret"
    await house.secret("hub", token)
    refusals = {
        "r401": (tricks.status(401, body=f"no {token}".encode()), "AccessDenied"),
        "r403": (tricks.status(403), "AccessDenied"),
        "r404": (tricks.status(404, "RepoNotFound"), "AccessDenied"),
        "rgated": (tricks.status(403, "GatedRepo"), "AccessDenied"),
        "rrev": (tricks.status(404, "RevisionNotFound"), "RevisionNotFound"),
        "r429": (tricks.status(429, Retry_After="1000000"), "SourceUnavailable"),
        "r500": (tricks.status(500), "SourceUnavailable"),
        "r503": (tricks.status(503), "SourceUnavailable"),
        "html": (tricks.raw(b"<html>" + token.encode(), "text/html"), "SourceUnavailable"),
        "list": (tricks.raw(b"[]"), "SourceUnavailable"),
        "null": (tricks.raw(b"null"), "SourceUnavailable"),
        "nosha": (tricks.raw(b'{"id": "x"}'), "SourceUnavailable"),
        "oddsha": (tricks.raw(b'{"id": "x", "sha": "../../x"}'), "SourceUnavailable"),
        "deep": (tricks.raw(b"[" * 100_000), "SourceUnavailable"),
    }
    for name, (trick, reason) in refusals.items():
        origin.add(f"o/{name}", FILES)
        origin.always(f"o/{name}@info", trick)
        expected[name] = reason
    trees = {
        "t401": (tricks.status(401), "AccessDenied"),
        "t429": (tricks.status(429, Retry_After="1000000"), "SourceUnavailable"),
        "t503": (tricks.status(503), "SourceUnavailable"),
        "thtml": (tricks.raw(b"<html>", "text/html"), "SourceUnavailable"),
        "tdict": (tricks.raw(b'{"a": 1}'), "SourceUnavailable"),
        "tkeys": (tricks.raw(b'[{"type": "file"}]'), "SourceUnavailable"),
        "tnull": (tricks.raw(b"[null]"), "SourceUnavailable"),
        "tsize": (tricks.raw(b'[{"type": "file", "path": "x", "size": null, "oid": "0"}]'), "SourceUnavailable"),
        "tempty": (tricks.raw(b"[]"), "EmptyManifest"),
        "tnext": (
            tricks.raw(b'[{"type": "directory", "path": "x"}]', Link='<http://127.0.0.1:9/x>; rel="next"'),
            "SourceUnavailable",
        ),
    }
    for name, (trick, reason) in trees.items():
        origin.add(f"o/{name}", FILES)
        origin.always(f"o/{name}@tree", trick)
        expected[name] = reason
    git = "0" * 40
    listings = {
        "masked": ([{"path": "w", "lfs": {"oid": "*" * 64, "size": 3}}], "AccessDenied"),
        "dots": ([{"path": "../../../etc/passwd"}], "InvalidManifest"),
        "absolute": ([{"path": "/etc/passwd"}], "InvalidManifest"),
        "control": ([{"path": "a\nb"}], "InvalidManifest"),
        "surrogate": ([{"path": "\ud800"}], "InvalidManifest"),
        "huge": ([{"path": "w", "size": 10**30}], "InvalidManifest"),
        "negative": ([{"path": "w", "size": -1}], "InvalidManifest"),
        "twice": ([{"path": "w"}, {"path": "w"}], "InvalidManifest"),
        "both": ([{"path": "w"}, {"path": "w/x"}], "InvalidManifest"),
        "long": ([{"path": "x" * 300}], "InvalidManifest"),
        "badhash": ([{"path": "w", "oid": "zz"}], "InvalidManifest"),
    }
    for name, (listing, reason) in listings.items():
        origin.add(f"o/{name}", FILES)
        origin.listings[f"o/{name}"] = [{"type": "file", "size": 3, "oid": git} | entry for entry in listing]
        expected[name] = reason
    controller = house.controller(GPUBUS_HUB_TIMEOUT_SECONDS="5").start().ready()
    for name in expected:
        await house.artifact(name, f"o/{name}", secret="hub")
    await house.artifact("nosecret", "o/n", secret="absent")
    await house.artifact("nothing", "o/thtml", ignorePatterns=["*"], secret="hub")

    messages = {name: await house.refused(name, reason) for name, reason in expected.items()}
    await house.refused("nosecret", "SecretNotFound")

    assert all(messages.values())
    assert not [name for name, message in messages.items() if token in message or "Bearer" in message]
    assert token not in controller.log_path.read_text()
    assert all(a.headers.get("authorization") == f"Bearer {token}" for a in origin.asked)
    assert controller.logged("loop_failed") == []
    origin.add("o/good", FILES)
    await house.artifact("good", "o/good")
    await house.resolved("good")


async def test_nobody_there_bad_tls_and_a_silent_hub_are_unavailable_and_hold_up_nobody(house, tmp_path):
    silent = threading.Event()
    origin = house.origin
    for number in range(6):
        origin.add(f"o/silent{number}", FILES)
        origin.always(f"o/silent{number}@tree", tricks.never(silent))
    house.import_files("o/local", FILES)
    house.controller(GPUBUS_HUB_TIMEOUT_SECONDS="2").start().ready()
    for number in range(6):
        await house.artifact(f"silent{number}", f"o/silent{number}")
    await eventually(lambda: [a for a in origin.asked if "/tree/" in a.path])

    await house.artifact("local", "o/local")
    await house.resolved("local")
    await house.refused("silent0", "SourceUnavailable")
    await house.refused("silent5", "SourceUnavailable")
    silent.set()

    key, certificate = tmp_path / "key.pem", tmp_path / "cert.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
         "-subj", "/CN=localhost", "-keyout", key, "-out", certificate],
        check=True, capture_output=True,
    )  # fmt: skip
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    secure = Origin(context)
    secure.add("o/tls", FILES)
    await house.endpoint(secure.url)
    await house.artifact("tls", "o/tls")
    await house.refused("tls", "SourceUnavailable")
    await house.endpoint("http://127.0.0.1:9")
    await house.artifact("gone", "o/gone")
    await house.refused("gone", "SourceUnavailable")
    assert secure.asked == []
    secure.close()

    await house.endpoint(origin.url)  # the change of the setting asks again at once
    origin.add("o/gone", FILES)
    await house.resolved("gone")


async def test_a_corrected_secret_is_asked_with_at_once(house):
    house.origin.add("o/gated", FILES)

    def gate(call):
        good = call.handler.lower().get("authorization") == "Bearer right"
        (tricks.raw(call.content) if good else tricks.status(401))(call)

    house.origin.always("o/gated@info", gate)
    await house.secret("hub", "wrong")
    await house.secret("empty", None)
    await house.secret("torn", "a\nb")
    house.controller().start().ready()
    await house.artifact("m", "o/gated", secret="hub")
    await house.artifact("e", "o/gated", secret="empty")
    await house.artifact("t", "o/gated", secret="torn")
    await house.refused("m", "AccessDenied")
    await house.refused("e", "SecretNotFound")
    await house.refused("t", "SecretNotFound")

    for name in ("hub", "empty", "torn"):
        await house.secret(name, "right\n")

    for name in ("m", "e", "t"):
        await house.resolved(name)


async def test_patterns_and_the_expected_digest_decide(house):
    house.origin.add("o/n", FILES)
    house.controller().start().ready()
    only = digest_of({"model.gguf": FILES["model.gguf"]})
    await house.artifact("all", "o/n")
    await house.artifact("one", "o/n", allowPatterns=["*.gguf"])
    await house.artifact("rest", "o/n", ignorePatterns=["sub/", "config.json"], expectedDigest=only)
    await house.artifact("none", "o/n", ignorePatterns=["*"])
    await house.artifact("case", "o/n", allowPatterns=["*.GGUF"])
    await house.artifact("other", "o/n", expectedDigest=only)

    assert await house.resolved("one") == await house.resolved("rest") == only
    assert await house.resolved("all") == digest_of(FILES)
    await house.refused("none", "EmptyManifest")
    await house.refused("case", "EmptyManifest")
    assert only in await house.refused("other", "DigestMismatch")


async def test_a_listing_of_several_pages_is_read_to_its_end(house):
    entries = [tricks.entry(f"f{number}", b"x" * number) for number in range(1, 31)]
    house.origin.add("o/paged", FILES)
    pages = [entries[:10], entries[10:20], entries[20:]]
    bodies = [json.dumps(page).encode() for page in pages]
    following = [f'<{house.origin.url}/api/models/o/paged/tree/x?cursor={n}>; rel="next"' for n in (1, 2)]
    house.origin.will(
        "o/paged@tree",
        tricks.raw(bodies[0], Link=following[0]),
        tricks.raw(bodies[1], Link=following[1]),
        tricks.raw(bodies[2]),
    )
    house.controller().start().ready()
    await house.artifact("paged", "o/paged")

    await house.resolved("paged")
    assert (await house.read("paged")).status.resolved.file_count == 30


async def test_the_local_hub_answers_first_and_needs_no_token(house):
    house.origin.add("o/n", {"remote": b"1"})
    commit = house.import_files("o/n", FILES)
    house.controller(HTTP_PROXY="http://127.0.0.1:9", http_proxy="http://127.0.0.1:9").start().ready()
    await house.artifact("m", "o/n")

    assert await house.resolved("m")
    told = (await house.read("m")).status.resolved
    assert (told.revision, told.endpoint, told.file_count) == (commit, "", 3)
    assert house.origin.asked == []


async def test_two_copies_resolve_each_artifact_once_and_one_takes_over(house):
    for number in range(12):
        house.origin.add(f"o/n{number}", {"w": content(str(number), 1500)})
    first = house.controller("modelstore-1").start().ready()
    second = house.controller("modelstore-2").start().ready()
    for number in range(6):
        await house.artifact(f"m{number}", f"o/n{number}")
    for number in range(6):
        await house.resolved(f"m{number}")
    first.kill()
    for number in range(6, 9):
        await house.artifact(f"m{number}", f"o/n{number}")
    first.start().ready()
    for number in range(9, 12):
        await house.artifact(f"m{number}", f"o/n{number}")
    second.send(signal.SIGSTOP)  # it may hold a lease that it does not know it lost
    for number in range(12):
        await house.resolved(f"m{number}")
    second.send(signal.SIGCONT)
    await eventually(lambda: house.fact_count("resolved", "m11", ""), timeout=30)
    await asyncio.sleep(0.5)

    counted = await house.facts()
    assert {counted["resolved", f"m{number}", ""] for number in range(12)} == {1}
    assert len([a for a in house.origin.asked if "/tree/" in a.path and house.origin.commits["o/n0"] in a.path]) == 1


async def test_a_controller_killed_at_a_commit_resolves_once(house):
    flag = house.directory / "flag"
    house.origin.add("o/n", FILES)
    for point in ("modelstore.before-commit", "modelstore.after-commit"):
        controller = house.controller(f"c-{point}", GPUBUS_FAULTS=f"{point}=kill@{flag}").start().ready()
        name = point.rpartition(".")[2]
        flag.touch()
        await house.artifact(name, "o/n")
        await eventually(lambda c=controller: not c.running, timeout=30)
        controller.kill()
        controller.start().ready()
        await house.resolved(name)
        await eventually(lambda n=name: house.fact_count("resolved", n, ""), timeout=30)
        controller.kill()

    counted = await house.facts()
    assert counted["resolved", "before-commit", ""] == counted["resolved", "after-commit", ""] == 1


async def test_other_sources_are_stored_and_say_that_they_are_not_served(house):
    house.controller().start().ready()
    from shared.commands.objects import WriteObject

    body = {
        "apiVersion": "worker.gpustack.ai/v1",
        "kind": "ModelArtifact",
        "metadata": {"name": "claim", "namespace": "default"},
        "spec": {"source": {"persistentVolumeClaim": {"claimName": "c"}}},
    }
    write = WriteObject(verb="create", kind="ModelArtifact", namespace="default", name="claim", object=body)
    assert not (await house.bus.write("modelstore", write, timeout=10)).error
    await house.refused("claim", "NotServedYet")
    changed = {**body, "spec": {"source": {"persistentVolumeClaim": {"claimName": "d"}}}}
    answer = await house.bus.write("modelstore", write.model_copy(update={"verb": "replace", "object": changed}))
    assert answer.error is not None
    assert "immutable" in str(answer.error)


async def test_a_deleted_artifact_goes_and_a_namespace_takes_its_artifacts_along(house):
    house.origin.add("o/n", FILES)
    house.controller().start().ready()
    await house.namespace("team")
    await house.artifact("m", "o/n")
    await house.artifact("m", "o/n", namespace="team")
    await house.resolved("m", "team")
    await house.remove("m")

    async def gone(namespace):
        return await house.read("m", namespace) is None

    await eventually(lambda: gone("default"), timeout=30)
    await house.remove_namespace("team", stays=True)  # a late fact of an earlier namespace of that name
    await house.artifact("probe", "o/n", namespace="team")
    await house.resolved("probe", "team")
    assert await house.read("m", "team") is not None
    await house.remove_namespace("team")
    await eventually(lambda: gone("team"), timeout=30)
