"""Bearer tokens and the rights of the four roles."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.gateway.domain.auth import Principal, authorise, bearer, new_token, sees_secrets, token_hash
from shared.errors import PermissionDenied, Unauthenticated
from shared.resources.kinds import KINDS

TOKEN = "gb_0123456789abcdef0123456789abcdef"


def sent(*headers):
    return [(name.encode(), value.encode("latin-1")) for name, value in headers]


@pytest.mark.parametrize(
    "headers",
    [
        sent(("authorization", f"Bearer {TOKEN}")),
        sent(("authorization", f"bearer {TOKEN}")),
        sent(("authorization", f"BEARER {TOKEN}")),
        sent(("x-api-key", TOKEN)),
        sent(("authorization", f"Bearer {TOKEN}"), ("x-api-key", TOKEN)),
    ],
)
def test_token_is_found(headers):
    assert bearer(headers) == TOKEN


def test_no_token_is_no_token():
    assert bearer(sent(("cookie", TOKEN))) == ""


@pytest.mark.parametrize(
    "headers",
    [
        sent(("authorization", f"Bearer  {TOKEN}")),
        sent(("authorization", f"Bearer {TOKEN}\n")),
        sent(("authorization", f"Bearer {TOKEN} ")),
        sent(("authorization", f"Basic {TOKEN}")),
        sent(("authorization", TOKEN)),
        sent(("authorization", "Bearer")),
        sent(("authorization", "Bearer ")),
        sent(("authorization", "Bearer short")),
        sent(("authorization", "Bearer " + "x" * 513)),
        sent(("authorization", "Bearer schlüssel-0123456789")),
        sent(("authorization", f"Bearer {TOKEN}"), ("authorization", "Bearer other-0123456789")),
        sent(("authorization", f"Bearer {TOKEN}"), ("x-api-key", "other-0123456789")),
    ],
)
def test_odd_credentials_are_refused_and_not_echoed(headers):
    with pytest.raises(Unauthenticated) as caught:
        bearer(headers)

    assert "0123456789" not in caught.value.message


@given(st.lists(st.tuples(st.sampled_from([b"authorization", b"x-api-key", b"x"]), st.binary(max_size=40)), max_size=3))
def test_any_headers_give_a_token_or_a_refusal(headers):
    try:
        assert isinstance(bearer(headers), str)
    except Unauthenticated:
        pass


def test_tokens_carry_128_bits_and_hashes_depend_on_the_servers_key():
    token = new_token(bytes(range(16)))

    assert token == "gb_" + bytes(range(16)).hex()
    assert token_hash(b"one", token) != token_hash(b"two", token)
    assert token not in token_hash(b"one", token)


ADMIN = Principal("root", "admin")
EDITOR = Principal("e", "editor", "team")
VIEWER = Principal("v", "viewer", "team")
USER = Principal("u", "model-user", "team")
READS, WRITES = ("get", "list", "watch"), ("create", "update", "patch", "delete", "deletecollection")


def may(principal, verb, kind, namespace, name=""):
    try:
        authorise(principal, verb, KINDS[kind], namespace, name)
    except PermissionDenied:
        return False
    return True


@pytest.mark.parametrize("verb", [*READS, *WRITES])
@pytest.mark.parametrize("kind", sorted(KINDS))
def test_administrators_may_everything_and_model_users_nothing(verb, kind):
    assert may(ADMIN, verb, kind, None)
    assert not may(USER, verb, kind, "team")


@pytest.mark.parametrize("verb", [*READS, *WRITES])
def test_editors_work_in_their_namespace_alone(verb):
    assert may(EDITOR, verb, "ModelDeployment", "team")
    assert may(EDITOR, verb, "Secret", "team")
    assert not may(EDITOR, verb, "ModelDeployment", "other")
    assert not may(EDITOR, verb, "ModelDeployment", None)
    assert not may(EDITOR, verb, "ApiKey", "team")
    assert not may(EDITOR, verb, "Setting", "gpustack-system")


@pytest.mark.parametrize("kind", ["ModelDeployment", "Secret", "Pod", "Event"])
def test_viewers_read_their_namespace_and_write_nothing(kind):
    assert all(may(VIEWER, verb, kind, "team") for verb in READS)
    assert not any(may(VIEWER, verb, kind, "team") for verb in WRITES)
    assert not may(VIEWER, "get", kind, "other")


@pytest.mark.parametrize("principal", [EDITOR, VIEWER])
def test_cluster_wide_kinds_are_read_only_and_of_namespaces_only_the_own(principal):
    assert all(may(principal, verb, "InstanceType", "") for verb in READS)
    assert not any(may(principal, verb, "InstanceType", "") for verb in WRITES)
    assert may(principal, "get", "Namespace", "", "team")
    assert not may(principal, "get", "Namespace", "", "other")
    assert not may(principal, "list", "Namespace", "")


def test_values_of_secrets_are_for_those_who_write_them():
    assert [sees_secrets(p) for p in (ADMIN, EDITOR, VIEWER, USER)] == [True, True, False, False]
