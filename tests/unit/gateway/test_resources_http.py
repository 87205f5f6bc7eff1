"""The edges of an exchange: paths, media ranges, request ids, and the one table of errors."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.gateway.domain.status import expired, failure
from services.gateway.routes import openapi
from services.gateway.routes.api import representation, target_of
from services.gateway.routes.discovery import groups
from services.gateway.routes.http import accepts, error_response, read_request
from shared.errors import FACES, GpubusError, Malformed, NotFound, Unavailable, from_dict, invalid
from shared.resources.kinds import KINDS


def request(path="/api", query="", method="GET", headers=()):
    scope = {
        "type": "http",
        "method": method,
        "path": path,
        "raw_path": path.encode(),
        "query_string": query.encode(),
        "headers": [(name.encode(), value.encode("latin-1")) for name, value in headers],
    }

    async def receive():
        return {"type": "http.disconnect"}

    return read_request(scope, receive)


@pytest.mark.parametrize(
    "path",
    [
        "/api/v1/namespaces/a%2fb",
        "/api/%2e%2e/x",
        "/api/./v1",
        "/api//v1",
        "/api/v1/%00",
        "/api/a%5cb",
        "/api/%ff",
        "/api/" + "x" * 300,
    ],
)
def test_path_that_cannot_be_a_name_is_malformed(path):
    with pytest.raises(Malformed):
        request(path)


@pytest.mark.parametrize("name", ["status", "progress", "a.b-c", "scale"])
def test_odd_but_legal_names_are_reachable(name):
    target = target_of(request(f"/api/v1/namespaces/default/configmaps/{name}").segments)

    assert (target.kind.kind, target.namespace, target.name, target.subresource) == ("ConfigMap", "default", name, "")


@pytest.mark.parametrize(
    ("path", "kind", "namespace", "name", "subresource"),
    [
        ("/api/v1/namespaces", "Namespace", "", "", ""),
        ("/api/v1/namespaces/team", "Namespace", "", "team", ""),
        ("/api/v1/namespaces/team/status", "Namespace", "", "team", "status"),
        ("/api/v1/pods", "Pod", None, "", ""),
        ("/api/v1/namespaces/team/pods", "Pod", "team", "", ""),
        ("/api/v1/namespaces/team/pods/p/log", "Pod", "team", "p", "log"),
        ("/apis/worker.gpustack.ai/v1/instancetypes/x", "InstanceType", "", "x", ""),
        ("/apis/worker.gpustack.ai/v1/namespaces/t/modeldeployments/m/scale", "ModelDeployment", "t", "m", "scale"),
        ("/apis/kueue.x-k8s.io/v1beta2/namespaces/t/workloads/w/explain", "Workload", "t", "w", "explain"),
    ],
)
def test_address_means_one_thing(path, kind, namespace, name, subresource):
    target = target_of(request(path).segments)

    assert (target.kind.kind, target.namespace, target.name, target.subresource) == (kind, namespace, name, subresource)


@pytest.mark.parametrize(
    "path",
    [
        "/api/v1/nonsense", "/apis/worker.gpustack.ai/v2/modeldeployments", "/apis/nope.io/v1/x", "/api/v1/namespaces/t/nodes",
        "/api/v1/pods/p", "/api/v1/namespaces/t/pods/p/exec", "/api/v1/namespaces/t/pods/p/log/x", "/apis/worker.gpustack.ai/v1/pods",
    ],
)  # fmt: skip
def test_address_of_nothing_is_not_found(path):
    with pytest.raises(NotFound):
        target_of(request(path).segments)


def test_unknown_resource_names_what_is_served():
    with pytest.raises(NotFound, match="modeldeployments"):
        target_of(request("/apis/worker.gpustack.ai/v1/modeldeploymentz").segments)


@pytest.mark.parametrize(
    ("header", "form"),
    [
        ("", "json"),
        ("*/*", "json"),
        ("application/json", "json"),
        (
            "application/json;as=Table;v=v1;g=meta.k8s.io,application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json",
            "table",
        ),
        ("application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json", "json"),
        ("application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io", "partial"),
        ("application/vnd.kubernetes.protobuf,application/json", "json"),
        ("application/json;q=0.1, application/json;as=Table;v=v1;g=meta.k8s.io;q=0.9", "table"),
    ],
)
def test_representation_is_the_first_that_we_have(header, form):
    assert representation(request(headers=[("accept", header)])) == form


@pytest.mark.parametrize("header", ["text/html", "application/vnd.kubernetes.protobuf", "application/yaml"])
def test_representation_that_we_lack_is_refused(header):
    with pytest.raises(Malformed):
        representation(request(headers=[("accept", header)]))


@given(st.text(max_size=60))
def test_any_accept_header_is_read(header):
    accepts(header)


@pytest.mark.parametrize(
    ("sent", "kept"),
    [
        ("req-123_A.b", True),
        ("a b", False),
        ("x" * 65, False),
        ("id%0aERROR", False),
        ("a\tb", False),
        ("ä", False),
        ("", False),
    ],
)
def test_request_id_is_echoed_only_when_it_is_harmless(sent, kept):
    found = request(headers=[("x-request-id", sent)]).id

    assert (found == sent) is kept
    assert len(found) <= 64
    assert found.isascii()


@pytest.mark.parametrize(
    ("query", "value"),
    [("watch=true", True), ("watch=1", True), ("watch=false", False), ("", False), ("watch=", False)],
)
def test_flags_are_read(query, value):
    assert request(query=query).flag("watch") is value


@pytest.mark.parametrize(
    ("query", "name"),
    [
        ("watch=maybe", "watch"),
        ("limit=-1", "limit"),
        ("limit=x", "limit"),
        ("limit=1e3", "limit"),
        ("limit=" + "9" * 30, "limit"),
    ],
)
def test_parameters_that_cannot_be_read_are_malformed(query, name):
    with pytest.raises(Malformed, match=name):
        request(query=query).flag(name) if name == "watch" else request(query=query).number(name)


@pytest.mark.parametrize("code", list(FACES))
def test_every_error_has_one_face(code):
    error = from_dict({"code": code.value, "message": "m"})

    response = error_response(error)

    assert response.status == FACES[error.code].status
    assert failure(error)["reason"] == FACES[error.code].reason


def test_refusal_names_fields_and_retry():
    assert failure(invalid("spec.x", "is wrong"))["details"]["causes"] == [
        {"reason": "FieldValueInvalid", "message": "is wrong", "field": "spec.x"}
    ]
    assert ("retry-after", "1") in error_response(Unavailable("away")).headers
    assert error_response(expired("old")).status == 410
    assert failure(GpubusError("x", (), {"name": "n", "kind": "pods"}))["details"] == {"name": "n", "kind": "pods"}


@pytest.mark.parametrize("api_version", list(groups()))
def test_openapi_describes_every_kind(api_version):
    import json

    place = "api/v1" if api_version == "v1" else f"apis/{api_version}"
    body = json.loads(openapi.document(place))
    schemas = body["components"]["schemas"]
    named = {g["kind"] for s in schemas.values() for g in s.get("x-kubernetes-group-version-kind", ())}

    assert {kind.kind for kind in KINDS.values() if kind.api_version == api_version} <= named
    text = json.dumps(body)
    for reference in {part.split('"')[0] for part in text.split("#/components/schemas/")[1:]}:
        assert reference in schemas
    assert '"null"' not in text
