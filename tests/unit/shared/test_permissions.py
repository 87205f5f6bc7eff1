"""Allow lists as computed; tests/integration/bus/test_permissions.py proves them on a server."""

from __future__ import annotations

import pytest

from shared import subjects
from shared.bus.permissions import all_users, nats_config, of_admin, of_fleet, of_node, of_principal, of_service
from shared.bus.streams import declared_durables, durables_of
from shared.errors import InvalidArgument

KEYS = {user: f"U{user.upper()}" for user in (*subjects.SERVICES, "admin", "fleet", "node-n1", "ada")}


@pytest.mark.parametrize("service", subjects.SERVICES)
def test_a_service_publishes_only_facts_it_owns(service: str):
    owners = {stream: service for service in subjects.SERVICES for stream in [subjects.owner_stream(service)]}
    permissions = of_service(service)

    for subject in permissions.publish:
        if subject.startswith("gpubus.evt."):
            others = [of_service(other).publish for other in subjects.SERVICES if other != service]
            assert not any(subject in other for other in others)
        if subject.startswith("gpubus.dlq."):
            assert subject == subjects.dead_letter_filter(service)
    assert owners[subjects.owner_stream(service)] == service


@pytest.mark.parametrize("service", subjects.SERVICES)
def test_a_service_pulls_its_own_durables_and_administers_nothing(service: str):
    publish = of_service(service).publish
    api = [subject for subject in publish if subject.startswith("$JS.API")]
    own = {durable.name for durable in durables_of(service)}

    pulled = {subject.rpartition(".")[2] for subject in api if ".MSG.NEXT." in subject}
    assert pulled == own
    assert all(".MSG.NEXT." in s or s.startswith(("$JS.API.STREAM.INFO.", "$JS.API.STREAM.MSG.GET.")) for s in api)
    assert not any(">" in subject or "*" in subject for subject in api)


def test_every_durable_belongs_to_exactly_one_service():
    counted = sum(len(durables_of(service)) for service in subjects.SERVICES)

    assert counted == len(declared_durables())


@pytest.mark.parametrize("service", subjects.SERVICES)
def test_a_service_listens_only_to_its_own_inbox(service: str):
    inboxes = [subject for subject in of_service(service).subscribe if subject.startswith("_INBOX")]

    assert inboxes == [f"_INBOX_{service}.>"]


def test_only_the_gateway_writes_objects_and_answers_users():
    for service in subjects.SERVICES:
        publish = of_service(service, ["ada"]).publish
        assert any(".write-object." in subject for subject in publish) == (service == "gateway")
        assert ("_INBOX_ada.>" in publish) == (service == "gateway")


def test_a_node_has_no_jetstream_api_and_only_its_own_tokens():
    permissions = of_node("gpu-1.example")

    for subject in (*permissions.publish, *permissions.subscribe):
        assert not subject.startswith("$")
        assert "gpu-1_2eexample" in subject
    assert "gpubus.wake.gpu-1_2eexample" in permissions.subscribe
    assert not any(subject.startswith(("gpubus.evt", "gpubus.cmd", "gpubus.req")) for subject in permissions.publish)


def test_the_fleet_has_what_each_of_its_nodes_has():
    fleet = of_fleet(["a", "b"])

    for node in ("a", "b"):
        assert set(of_node(node).publish) <= set(fleet.publish)
    assert not any(".c." in subject or subject.endswith(".c") for subject in fleet.publish)


def test_a_user_publishes_only_as_itself():
    assert of_principal("ada").publish == (
        "gpubus.cmd.gateway.apply.v1.ada.*", "gpubus.req.gateway.apply.v1.ada.*",
    )  # fmt: skip


@pytest.mark.parametrize("name", ["scheduler", "admin", "fleet", "node-1", ""])
def test_reserved_names_are_no_users(name: str):
    with pytest.raises(InvalidArgument, match="reserved"):
        of_principal(name)


def test_the_configuration_names_every_user_with_its_key():
    text = nats_config(KEYS, fleet_nodes=["s-0"], principals=["ada"])

    for user, key in KEYS.items():
        assert f"nkey: {key}" in text
        assert f"# {subjects.encode(user)}\n" in text
    assert text.count("allow_responses") == len(KEYS) - 2  # the admin needs none, users may not answer
    assert all_users(KEYS, principals=["ada"])["admin"] == of_admin()


def test_no_name_can_break_out_of_the_configuration():
    text = nats_config({'node-a"]} }}\n x: {': "UKEY"})

    assert "\n x" not in text
    assert text.count('"') % 2 == 0
