"""Rules of the gateway's own kinds."""

import base64

import pytest

from services.gateway.domain.rules import FINALIZER, RULES, check_deletion, without_key_material
from shared.errors import InvalidArgument, PermissionDenied
from shared.resources.access import SETTINGS
from shared.resources.kinds import KINDS


def made(kind, **body):
    resource = KINDS[kind].model.model_validate(
        {"apiVersion": KINDS[kind].api_version, "kind": kind, "metadata": {"name": "x", "namespace": "n"}, **body}
    )
    return RULES[kind].default(resource)


def causes(kind, new, old=None):
    return [cause.field for cause in RULES[kind].validate(new, old, lambda *_: None)]


def facts(kind, old, new):
    return [f"{fact.AGGREGATE}.{fact.FACT}" for fact in RULES[kind].facts(old, new)]


def deleted(resource):
    from datetime import UTC, datetime

    metadata = resource.metadata.model_copy(update={"deletion_timestamp": datetime(2026, 1, 1, tzinfo=UTC)})
    return resource.model_copy(update={"metadata": metadata})


def test_namespace_always_carries_the_finalizer():
    namespace = made("Namespace", metadata={"name": "team", "finalizers": ["my/own"]})

    assert namespace.metadata.finalizers == ["my/own", FINALIZER]
    assert RULES["Namespace"].names.problem("a.b")


@pytest.mark.parametrize(("name", "kept"), [("default", True), ("gpustack-system", True), ("team", False)])
def test_system_namespaces_cannot_be_deleted(name, kept):
    if kept:
        with pytest.raises(PermissionDenied):
            check_deletion("Namespace", name)
    else:
        check_deletion("Namespace", name)
    check_deletion("ConfigMap", name)


def test_namespace_facts_tell_creation_and_both_steps_of_its_end():
    namespace = made("Namespace")

    assert facts("Namespace", None, namespace) == ["object-gateway.applied"]
    assert facts("Namespace", namespace, namespace) == []
    assert facts("Namespace", namespace, deleted(namespace)) == ["object-gateway.removed"]
    assert facts("Namespace", deleted(namespace), None) == ["object-gateway.removed"]


def test_string_data_becomes_data():
    secret = made("Secret", data={"a": "MQ=="}, stringData={"b": "höhe\n"})

    assert secret.data == {"a": "MQ==", "b": base64.b64encode("höhe\n".encode()).decode()}
    assert secret.string_data is None
    assert causes("Secret", secret) == []


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"data": {"a": "not base64!"}}, "data[a]"),
        ({"data": {"a": "MQ"}}, "data[a]"),
        ({"data": {"a/b": "MQ=="}}, "data[a/b]"),
        ({"data": {"..": "MQ=="}}, "data[..]"),
        ({"data": {"": "MQ=="}}, "data[]"),
        ({"data": {"a": "MQ==" * 300_000}}, "data"),
    ],
)
def test_secret_that_cannot_be_used_is_refused(body, field):
    assert field in causes("Secret", made("Secret", **body))


def test_type_and_immutable_content_of_a_secret_stay():
    old = made("Secret", data={"a": "MQ=="}, immutable=True)

    assert causes("Secret", made("Secret", data={"a": "Mg=="}, immutable=True), old) == ["data"]
    assert causes("Secret", made("Secret", data={"a": "MQ=="}), old) == ["immutable"]
    assert causes("Secret", made("Secret", data={"a": "MQ=="}, immutable=True, type="other"), old) == ["type"]


def test_config_map_key_may_be_in_one_place_only():
    assert causes("ConfigMap", made("ConfigMap", data={"a": "1"}, binaryData={"a": "MQ=="})) == ["data[a]"]


def test_change_of_content_is_a_fact_and_of_annotations_is_none():
    old = made("ConfigMap", data={"a": "1"})
    other = made("ConfigMap", data={"a": "2"})
    noted = old.model_copy(update={"metadata": old.metadata.model_copy(update={"annotations": {"x": "y"}})})

    assert facts("ConfigMap", old, other) == ["object-gateway.applied"]
    assert facts("ConfigMap", old, noted) == []


def setting(name, value, namespace="gpustack-system"):
    return made("Setting", metadata={"name": name, "namespace": namespace}, spec={"value": value})


@pytest.mark.parametrize("name", sorted(SETTINGS))
def test_every_default_is_valid(name):
    assert causes("Setting", setting(name, SETTINGS[name])) == []


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("model-artifact-huggingface-endpoint", "http://user:pw@hub/"),
        ("model-artifact-huggingface-endpoint", "http://169.254.169.254/"),
        ("model-artifact-huggingface-endpoint", "gopher://x"),
        ("model-artifact-huggingface-endpoint", "https://hub/\r\nX: 1"),
        ("model-artifact-huggingface-endpoint", ""),
        ("model-artifact-huggingface-endpoint", "http://"),
        ("model-artifact-huggingface-endpoint", "http://h:99999/"),
        ("model-artifact-huggingface-endpoint", "http://[::1/"),
        ("model-artifact-https-proxy", "socks5://x"),
        ("model-artifact-revalidate-interval", "1 day"),
        ("model-store-high-watermark", "99"),
        ("model-store-high-watermark", "-1"),
        ("model-store-high-watermark", "\uff18\uff10"),
        ("model-store-peer-sync", "yes"),
        ("image-pull-policy", "sometimes"),
    ],
)
def test_setting_out_of_bounds_is_refused(name, value):
    assert causes("Setting", setting(name, value)) == ["spec.value"]


@pytest.mark.parametrize("value", ["http://127.0.0.1:8080", "https://hub.example/path", "http://[::1]:80/"])
def test_hub_may_be_anywhere_else(value):
    assert causes("Setting", setting("model-artifact-huggingface-endpoint", value)) == []


def test_setting_that_is_not_in_the_catalogue_is_refused():
    assert causes("Setting", setting("nope", "1")) == ["metadata.name"]
    assert causes("Setting", setting("model-store-peer-sync", "true", "default")) == ["metadata.namespace"]


def key(**spec):
    return made("ApiKey", spec={"hash": "h", "prefix": "gb_1", **spec})


def test_key_facts_tell_issue_change_and_revocation():
    issued = key()

    assert facts("ApiKey", None, issued) == ["key.issued"]
    assert facts("ApiKey", issued, issued) == []
    assert facts("ApiKey", issued, key(models=["m"])) == ["key.issued"]
    assert facts("ApiKey", issued, key(disabled=True)) == ["key.revoked"]
    assert facts("ApiKey", issued, None) == ["key.revoked"]


def test_senders_do_not_choose_keys():
    for spec in ({"hash": "x"}, {"prefix": "gb_"}):
        with pytest.raises(InvalidArgument):
            without_key_material(spec)
    assert causes("ApiKey", key(hash="other"), key()) == ["spec.hash"]
    assert causes("ApiKey", key(models=[" "])) == ["spec.models[0]"]
