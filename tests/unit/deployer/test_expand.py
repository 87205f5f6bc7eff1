"""Variables in commands."""

from __future__ import annotations

import pytest

from services.deployer.domain.expand import environment, expand, mentions

PORT = "GPUBUS_PORT"


@pytest.mark.parametrize(
    ("text", "filled"),
    [
        ("--port $(GPUBUS_PORT)", "--port 8000"),
        ("$(GPUBUS_PORT)$(GPUBUS_PORT)", "80008000"),
        ("$$(GPUBUS_PORT)", "$(GPUBUS_PORT)"),
        ("$(OTHER)", "$(OTHER)"),
        ("$GPUBUS_PORT", "$GPUBUS_PORT"),
    ],
)
def test_references_are_filled_in_as_kubernetes_does(text, filled):
    assert expand(text, {PORT: "8000"}) == filled


@pytest.mark.parametrize("text", ["-p $(GPUBUS_PORT)", "serve $GPUBUS_PORT", "serve ${GPUBUS_PORT}", ":$GPUBUS_PORT/"])
def test_a_command_that_takes_the_agents_port_is_seen(text):
    assert mentions(["sh", "-c", text], PORT)


@pytest.mark.parametrize("text", ["8000", "GPUBUS_PORT", "$$(GPUBUS_PORT)", "$GPUBUS_PORTS", "$(GPUBUS_PORT_2)"])
def test_a_command_with_a_port_of_its_own_is_seen(text):
    assert not mentions(["sh", "-c", text], PORT)


def test_users_variables_may_refer_to_earlier_ones_and_not_replace_ours():
    made = environment({PORT: "1"}, [("A", "$(GPUBUS_PORT)"), ("B", "$(A)$(C)"), ("C", "x"), (PORT, "9")])

    assert made == {PORT: "1", "A": "1", "B": "1$(C)", "C": "x"}
