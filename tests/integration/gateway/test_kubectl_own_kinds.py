"""A stock kubectl against a real gateway: what people type, and what they see."""

import pytest

CONFIG = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: NAME}\ndata: {x: '1'}\n"


def config(name, **data):
    text = ", ".join(f"{key}: '{value}'" for key, value in (data or {"x": "1"}).items())
    return f"apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: {name}}}\ndata: {{{text}}}\n"


def test_version_and_resources_are_listed(gateway):
    assert "Server Version: v1.37" in gateway.kubectl("version")
    listed = gateway.kubectl("api-resources")
    assert all(word in listed for word in ("modeldeployments", "md", "workloads", "wl", "instype", "apikeys"))
    assert "modelartifacts" in gateway.kubectl("api-resources", "--categories=gpustack")


def test_namespaces_exist_from_the_start(gateway):
    lines = gateway.kubectl("get", "ns").splitlines()

    assert [line.split()[:2] for line in lines] == [
        ["NAME", "STATUS"],
        ["default", "Active"],
        ["gpustack-system", "Active"],
    ]


def test_settings_exist_with_their_defaults(gateway):
    said = gateway.kubectl(
        "get",
        "set",
        "model-store-high-watermark",
        "-n",
        "gpustack-system",
        "-o",
        "jsonpath={.spec.value} {.status.value}",
    )

    assert said == "80 80"


def test_apply_creates_then_changes_then_leaves_alone(gateway):
    assert "created" in gateway.kubectl("apply", "-f", "-", text=config("apply"))
    assert "configured" in gateway.kubectl("apply", "-f", "-", text=config("apply", x="2", w="3"))
    before = gateway.kubectl("get", "cm", "apply", "-o", "jsonpath={.metadata.resourceVersion}")
    assert "unchanged" in gateway.kubectl("apply", "-f", "-", text=config("apply", x="2", w="3"))
    assert "configured" in gateway.kubectl("apply", "-f", "-", text=config("apply", w="3"))

    assert gateway.kubectl("get", "cm", "apply", "-o", "jsonpath={.data}") == '{"w":"3"}'
    assert before != gateway.kubectl("get", "cm", "apply", "-o", "jsonpath={.metadata.resourceVersion}")


def test_server_side_apply_owns_fields_and_refuses_to_steal(gateway):
    gateway.kubectl("apply", "--server-side", "--field-manager=one", "-f", "-", text=config("ssa", x="1"))
    said = gateway.kubectl(
        "apply", "--server-side", "--field-manager=two", "-f", "-", text=config("ssa", x="2"), fails=True
    )
    assert 'conflict with "one"' in said
    assert ".data.x" in said

    gateway.kubectl(
        "apply", "--server-side", "--field-manager=two", "--force-conflicts", "-f", "-", text=config("ssa", x="2")
    )

    assert gateway.kubectl("get", "cm", "ssa", "-o", "jsonpath={.data.x}") == "2"


def test_client_side_applied_object_can_move_to_server_side(gateway):
    gateway.kubectl("apply", "-f", "-", text=config("move", x="1", w="2"))

    gateway.kubectl("apply", "--server-side", "-f", "-", text=config("move", x="1", w="2"))
    gateway.kubectl("apply", "--server-side", "-f", "-", text=config("move", x="1"))

    assert gateway.kubectl("get", "cm", "move", "-o", "jsonpath={.data}") == '{"x":"1"}'


@pytest.mark.parametrize("how", [[], ["--server-side"]])
def test_diff_shows_the_change_and_makes_none(gateway, how):
    name = f"diff{len(how)}"
    gateway.kubectl("apply", *how, "-f", "-", text=config(name))
    before = gateway.kubectl("get", "cm", name, "-o", "yaml")

    said = gateway.kubectl("diff", *how, "-f", "-", text=config(name, x="9"), fails=True)

    assert '+  x: "9"' in said
    assert gateway.kubectl("get", "cm", name, "-o", "yaml") == before


@pytest.mark.parametrize("how", ["client", "server"])
def test_dry_run_creates_nothing(gateway, how):
    assert "dry run)" in gateway.kubectl("apply", f"--dry-run={how}", "-f", "-", text=config(f"dry-{how}"))

    assert "NotFound" in gateway.kubectl("get", "cm", f"dry-{how}", fails=True)


def test_create_patch_label_annotate_replace_delete(gateway):
    gateway.kubectl("create", "configmap", "life", "--from-literal=a=1")
    gateway.kubectl("label", "cm", "life", "tier=gold")
    gateway.kubectl("annotate", "cm", "life", "note=x y")
    gateway.kubectl("patch", "cm", "life", "--type=merge", "-p", '{"data":{"b":"2"}}')
    gateway.kubectl("patch", "cm", "life", "--type=json", "-p", '[{"op":"remove","path":"/data/a"}]')
    gateway.kubectl("patch", "cm", "life", "-p", '{"data":{"c":"3"}}')
    assert gateway.kubectl("get", "cm", "-l", "tier=gold", "-o", "jsonpath={.items[0].data}") == '{"b":"2","c":"3"}'

    gateway.kubectl("replace", "-f", "-", text=config("life", v="26"))
    assert gateway.kubectl("get", "cm", "life", "-o", "jsonpath={.data}{.metadata.labels}") == '{"v":"26"}'

    assert "deleted" in gateway.kubectl("delete", "cm", "life")
    assert "NotFound" in gateway.kubectl("get", "cm", "life", fails=True)


def test_generated_names_are_made(gateway):
    text = "apiVersion: v1\nkind: ConfigMap\nmetadata: {generateName: gen-}\n"

    first, second = (gateway.kubectl("create", "-f", "-", "-o", "name", text=text).strip() for _ in range(2))

    assert first.startswith("configmap/gen-")
    assert first != second


def test_objects_read_back_can_be_applied_again(gateway):
    gateway.kubectl("apply", "-f", "-", text=config("again"))
    read = gateway.kubectl("get", "cm", "again", "-o", "yaml")

    assert "replaced" in gateway.kubectl("replace", "-f", "-", text=read)


def test_secret_life(gateway):
    gateway.kubectl("create", "secret", "generic", "hf", "--from-literal=token=abc")

    assert "token:  3 bytes" in gateway.kubectl("describe", "secret", "hf")
    assert gateway.kubectl("get", "secret", "hf", "-o", "jsonpath={.data.token}") == "YWJj"


def test_key_life(gateway):
    text = "apiVersion: gpubus.io/v1\nkind: ApiKey\nmetadata: {name: NAME}\nspec: {models: [m]}\n"

    said = gateway.kubectl("apply", "-f", "-", text=text.replace("NAME", "quiet"))
    shown = gateway.kubectl("create", "-f", "-", "-o", "jsonpath={.status.token}", text=text.replace("NAME", "asked"))
    token = shown.partition("Warning:")[0].strip()
    listed = gateway.kubectl("get", "apikeys", "quiet", "asked")

    assert "Warning: the key is status.token of this answer" in said
    assert "gb_" not in said
    assert token.startswith("gb_")
    assert len(token) == len("gb_") + 32
    assert "unchanged" in gateway.kubectl("apply", "-f", "-", text=text.replace("NAME", "quiet"))
    assert listed.split("\n")[0].split() == ["NAME", "ROLE", "PREFIX", "PHASE", "EXPIRES", "AGE"]
    assert token[:7] in listed
    assert token not in listed + gateway.kubectl("get", "apikey", "asked", "-o", "yaml", "--show-managed-fields")
    assert "deleted" in gateway.kubectl("delete", "apikeys", "quiet", "asked")


def test_explain_reads_the_schemas(gateway):
    said = gateway.kubectl("explain", "modeldeployment.spec.roles.replicas")
    assert "FIELD: replicas <integer>" in said
    assert "FIELDS" in gateway.kubectl("explain", "pod.spec", "--recursive")


def test_wait_and_watch_see_changes(gateway):
    gateway.kubectl("apply", "-f", "-", text=config("wait"))

    assert "condition met" in gateway.kubectl("wait", "--for=jsonpath={.data.x}=1", "cm/wait", "--timeout=5s")
    assert "wait" in gateway.kubectl("get", "cm", "wait", "-w", "--request-timeout=1s")
    gateway.kubectl("delete", "cm", "wait", "--wait=false")
    gateway.kubectl("wait", "--for=delete", "cm/wait", "--timeout=5s")


def test_namespace_and_everything_in_it_goes(gateway):
    gateway.kubectl("create", "namespace", "team")
    gateway.kubectl("create", "cm", "a", "-n", "team", "--from-literal=a=1")
    gateway.kubectl("create", "secret", "generic", "b", "-n", "team", "--from-literal=a=1")
    gateway.new_key("k", "viewer", "team")

    assert "deleted" in gateway.kubectl("delete", "ns", "team", "--timeout=20s")

    assert "NotFound" in gateway.kubectl("get", "ns", "team", fails=True)
    assert "No resources found" in gateway.kubectl("get", "cm,secrets,apikeys", "-n", "team")
    gateway.kubectl("create", "namespace", "team")


def test_unknown_namespace_names_the_command_that_creates_it(gateway):
    said = gateway.kubectl("apply", "-f", "-", "-n", "nowhere", text=config("x"), fails=True)

    assert "kubectl create namespace nowhere" in said


def test_system_namespace_stays(gateway):
    assert "may not be deleted" in gateway.kubectl("delete", "ns", "default", fails=True)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (CONFIG.replace("\ndata:", "\ndaat:"), "daat"),
        (CONFIG.replace("ConfigMap", "Configmap"), "no matches for kind"),
        (CONFIG.replace("'1'", "1"), "data.x"),
        (CONFIG.replace("NAME", "Bad_Name"), "metadata.name"),
        (CONFIG.replace("NAME", "a" * 254), "cannot be a name"),
    ],
)
def test_bad_manifests_are_refused_by_field(gateway, text, said):
    assert said in gateway.kubectl("apply", "-f", "-", text=text.replace("NAME", "bad"), fails=True)


def test_owner_that_is_away_is_said_so(gateway):
    answer = gateway.call(
        "POST",
        "/apis/worker.gpustack.ai/v1/namespaces/default/modelartifacts",
        {"metadata": {"name": "a"}, "spec": {"source": {"huggingFace": {"repository": "o/n"}}}},
    )

    assert answer.status == 503
    assert answer.headers["Retry-After"]
    assert "modelstore" in answer.body["message"]


def test_roles_see_and_do_what_they_may(gateway):
    gateway.kubectl("create", "namespace", "roles")
    editor = gateway.new_key("editor", "editor", "roles")
    viewer = gateway.new_key("viewer", "viewer", "roles")
    user = gateway.new_key("user", "model-user", "roles")

    gateway.kubectl("create", "secret", "generic", "s", "-n", "roles", "--from-literal=a=b", token=editor)
    assert gateway.kubectl("get", "secret", "s", "-n", "roles", "-o", "jsonpath={.data.a}", token=editor) == "Yg=="
    assert gateway.kubectl("get", "secret", "s", "-n", "roles", "-o", "jsonpath={.data.a}", token=viewer) == ""
    assert "forbidden" in gateway.kubectl("create", "cm", "x", "-n", "roles", token=viewer, fails=True)
    assert "forbidden" in gateway.kubectl("create", "cm", "x", "-n", "default", token=editor, fails=True)
    assert "forbidden" in gateway.kubectl("get", "apikeys", "-n", "roles", token=editor, fails=True)
    assert "resource API" in gateway.kubectl("get", "cm", "-n", "roles", token=user, fails=True)


def test_scale_and_logs_of_what_is_not_there_are_not_found(gateway):
    assert "not found" in gateway.kubectl("scale", "md/nope", "--replicas=2", fails=True)
    assert "not found" in gateway.kubectl("logs", "nope", fails=True)


def test_python_clients_work(gateway):
    from kubernetes import client, config, dynamic

    config.load_kube_config(str(gateway.kubeconfig()))
    found = dynamic.DynamicClient(client.ApiClient())
    maps = found.resources.get(api_version="v1", kind="ConfigMap")
    maps.create(body={"metadata": {"name": "py"}, "data": {"a": "1"}}, namespace="default")
    maps.patch(
        body={"metadata": {"name": "py"}, "data": {"b": "2"}},
        namespace="default",
        content_type="application/merge-patch+json",
    )

    assert maps.get(name="py", namespace="default").data.to_dict() == {"a": "1", "b": "2"}
    assert "py" in [item.metadata.name for item in maps.get(namespace="default").items]
    events = [event["type"] for event in maps.watch(namespace="default", name="py", timeout=1)]
    assert events[0] == "ADDED"
    keys = client.CustomObjectsApi().list_namespaced_custom_object("gpubus.io", "v1", "default", "apikeys")
    assert keys["kind"] == "ApiKeyList"
