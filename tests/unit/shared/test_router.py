"""Decorators and what a router knows of its handlers."""

from __future__ import annotations

import pytest

from shared.bus.context import MessageContext, UserCommand
from shared.bus.router import Router, command, on, query, report, request, specs, telemetry, user_command
from shared.bus.streams import declared_durables
from shared.commands.objects import WriteObject
from shared.commands.workload import SubmitWorkload
from shared.events.device import DeviceFound
from shared.queries import ExplainPlacement, Heartbeat
from shared.reports import PodsReported


class Handlers:
    @on(DeviceFound, workers=3, attempts=2, timeout=5)
    async def on_device_found(self, fact: object, ctx: MessageContext) -> None: ...

    @command(SubmitWorkload)
    async def submit_workload(self, order: object, ctx: MessageContext) -> None: ...

    @report(PodsReported)
    async def on_pods_reported(self, seen: object, ctx: MessageContext) -> None: ...

    @query(ExplainPlacement)
    async def explain_placement(self, question: object, ctx: MessageContext) -> None: ...

    @telemetry(Heartbeat)
    async def on_heartbeat(self, beat: object, ctx: MessageContext) -> None: ...

    @request(WriteObject)
    async def write_object(self, write: object, ctx: MessageContext) -> None: ...

    @user_command()
    async def apply(self, order: object, ctx: MessageContext) -> None: ...

    async def not_one(self) -> None: ...


def test_a_class_of_handlers_tells_what_it_handles_without_being_built():
    found = {spec.handler: spec for spec in specs(Handlers)}

    assert set(found) == {
        "on_device_found", "submit_workload", "on_pods_reported", "explain_placement", "on_heartbeat", "write_object", "apply",
    }  # fmt: skip
    assert (found["on_device_found"].workers, found["on_device_found"].attempts, found["on_device_found"].timeout) == (
        3,
        2,
        5,
    )


@pytest.mark.parametrize(
    ("handler", "stored", "answers", "stream"),
    [
        ("on_device_found", True, False, "FACTS_DISCOVERY"),
        ("submit_workload", True, True, "COMMANDS"),
        ("on_pods_reported", True, False, "REPORTS"),
        ("apply", True, True, "COMMANDS"),
        ("explain_placement", False, True, None),
        ("on_heartbeat", False, False, None),
        ("write_object", False, True, None),
    ],
)
def test_where_each_class_is_stored_and_whether_refusals_are_answers(
    handler: str, stored: object, answers: object, stream: str
):
    spec = next(spec for spec in specs(Handlers) if spec.handler == handler)

    assert (spec.stored, spec.answers) == (stored, answers)
    if stored:
        assert spec.stream == stream


def test_a_router_names_the_durables_that_the_migrator_declares():
    router = Router("scheduler")
    router.include(Handlers())

    assert set(router.durables()) == {
        "scheduler-on-device-found", "scheduler-submit-workload", "scheduler-on-pods-reported", "scheduler-apply",
    }  # fmt: skip
    declared = {durable.name for durable in declared_durables()}
    assert set(router.durables()) - {"scheduler-apply"} <= declared
    assert {"gateway-apply", "scheduler-redrive"} <= declared
    assert (DeviceFound, "on_device_found") in router.consumers()
    assert not any(message is UserCommand for message, _ in router.consumers())


def test_two_handlers_with_one_id_are_refused():
    router = Router("scheduler")
    router.include(Handlers())

    with pytest.raises(ValueError, match="two handlers called"):
        router.include(Handlers())


def test_a_decorator_refuses_the_wrong_class_of_message():
    with pytest.raises(TypeError):
        on(SubmitWorkload)  # type: ignore[arg-type]


def test_filters_on_one_work_queue_do_not_overlap():
    filters = [durable.subject.removesuffix(".>") for durable in declared_durables() if durable.stream == "COMMANDS"]

    for one in filters:
        assert not any(other != one and other.startswith(one) for other in filters)
    assert len(set(filters)) == len(filters)
