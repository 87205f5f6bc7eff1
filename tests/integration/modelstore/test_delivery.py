"""Copies on nodes through the controller and the agents: ready once, told once, refused with a reason, resumed."""

from __future__ import annotations

import asyncio
import hashlib
import threading
from pathlib import Path

from shared.queries import DesiredModels, ModelProgress
from tests.integration.modelstore import origin as tricks
from tests.integration.modelstore.conftest import content
from tests.support.wait import eventually

SIZE = 1_000_000
CUT = 400_000
WEIGHTS = content("weights", SIZE)


async def test_a_copy_is_ready_on_each_node_once_and_counted(house):
    commit = house.import_files("o/n", {"w.gguf": WEIGHTS, "config.json": b"{}"})
    house.controller().start().ready()
    for node in ("n1", "n2", "n3"):
        house.agent(node).start().ready()
    await house.artifact("m", "o/n")
    digest = await house.resolved("m")
    await house.admit("m", "n1", "n2")

    copies = [await house.copy_is(digest, "Ready", node) for node in ("n1", "n2")]

    for copy in copies:
        assert Path(copy.path, "w.gguf").read_bytes() == WEIGHTS
        assert copy.size_bytes == copy.downloaded_bytes == SIZE + 2

    async def counted():
        nodes = (await house.read("m")).status.nodes
        return (nodes.ready, nodes.downloading, nodes.failed, nodes.downloading_percent) == (2, 0, 0, None)

    await eventually(counted, timeout=30)
    assert await house.copy(digest, "n3") is None

    async def told():
        facts = await house.facts()
        return facts["ready", "m", "n1"] and facts["ready", "m", "n2"]

    await eventually(told, timeout=30)
    facts = await house.facts()
    assert facts["ready", "m", "n1"] == facts["ready", "m", "n2"] == facts["resolved", "m", ""] == 1
    assert not [key for key in facts if key[0] in {"failed", "evicted"} or key[2] == "n3"]
    assert (await house.read("m")).status.resolved.revision == commit


async def test_a_second_artifact_of_the_same_bytes_is_ready_without_a_transfer(house):
    house.origin.add("o/a", {"w": WEIGHTS})
    house.origin.add("o/b", {"w": WEIGHTS})
    house.controller().start().ready()
    house.agent().start().ready()
    await house.artifact("a", "o/a")
    digest = await house.resolved("a")
    await house.admit("a", "n1")
    await house.copy_is(digest, "Ready")

    await house.artifact("b", "o/b")
    assert await house.resolved("b") == digest
    await house.admit("b", "n1")

    await eventually(lambda: house.fact_count("ready", "b", "n1"), timeout=30)
    assert len(house.origin.files_asked("/w")) == 1
    assert await house.fact_count("ready", "a", "n1") == 1


async def test_many_pods_of_one_model_on_a_node_are_one_transfer(house):
    house.origin.add("o/n", {"w": WEIGHTS})
    house.controller().start().ready()
    house.agent().start().ready()
    await house.artifact("m", "o/n")
    digest = await house.resolved("m")
    await asyncio.gather(*(house.admit("m", "n1", name=f"w{n}") for n in range(5)))

    await house.copy_is(digest, "Ready")
    assert len(house.origin.files_asked("/w")) == 1


async def test_progress_is_told_while_it_runs_and_shown_on_the_artifact(house):
    house.origin.add("o/n", {"w": WEIGHTS})
    going, reached = threading.Event(), threading.Event()
    house.origin.will("o/n/w", tricks.wait_after(CUT, going, reached))
    house.controller().start().ready()
    house.agent().start().ready()
    samples: list[ModelProgress] = []
    await house.bus.on_telemetry(ModelProgress, samples.append)
    await house.artifact("m", "o/n")
    digest = await house.resolved("m")
    await house.admit("m", "n1")

    await eventually(lambda: any(s.downloaded_bytes == CUT for s in samples), timeout=30)

    async def shown():
        nodes = (await house.read("m")).status.nodes
        return (nodes.downloading, nodes.downloading_percent) == (1, 40)

    await eventually(shown, timeout=30)
    assert (await house.copy(digest)).state == "Downloading"
    assert {(s.source, s.digest, s.size_bytes) for s in samples} == {("n1", digest, SIZE)}
    going.set()
    await house.copy_is(digest, "Ready")
    await eventually(lambda: house.fact_count("ready", "m", "n1"), timeout=30)
    assert await house.fact_count("delivering", "m", "n1") == 1


async def test_failed_copies_have_reasons_and_a_time_and_hold_up_no_other(house):
    origin = house.origin
    await house.secret("hub", "hf_verysecret")
    bad = {
        "flip": (tricks.flipped(7), "IntegrityMismatch"),
        "html": (tricks.raw(b"x" * 635, "text/html"), "IntegrityMismatch"),
        "denied": (tricks.status(403), "AccessDenied"),
        "brackets": (tricks.redirect("http://[bad/x"), "InvalidRequest"),
        "vanished": (tricks.status(404, "RevisionNotFound"), "SourceUnavailable"),
    }
    for name, (trick, _) in bad.items():
        origin.add(f"o/{name}", {"w": content(name, 5000)})
        origin.always(f"o/{name}/w", trick)
    origin.add("o/good", {"w": content("good", 5000)})
    controller = house.controller().start().ready()
    agent = house.agent().start().ready()
    digests = {}
    for name in [*bad, "good"]:
        await house.artifact(name, f"o/{name}", secret="hub")
    for name in [*bad, "good"]:
        digests[name] = await house.resolved(name)
        await house.admit(name, "n1")

    await house.copy_is(digests["good"], "Ready")
    failed = {name: await house.copy_is(digests[name], "Failed", reason=reason) for name, (_, reason) in bad.items()}

    assert all(copy.retry_time and copy.message and not copy.path for copy in failed.values())
    for name in bad:
        await eventually(lambda n=name: house.fact_count("failed", n, "n1"), timeout=30)
        assert await house.fact_count("failed", name, "n1") == 1
    assert agent.logged("loop_failed") == []
    written = agent.log_path.read_text() + controller.log_path.read_text()
    assert "hf_verysecret" not in written + "".join(copy.message for copy in failed.values())
    ready = list((house.directory / "n1" / "models" / "ready").iterdir())
    assert [path.name for path in ready] == [digests["good"].removeprefix("sha256:")]


async def test_every_request_names_the_commit_also_when_the_branch_moved(house):
    files = {"a": content("a1", 5000), "b": content("b1", 5000)}
    commit = house.origin.add("o/n", files)
    house.controller().start().ready()
    await house.artifact("m", "o/n")
    digest = await house.resolved("m")
    house.origin.commits["o/n"] = "f" * 40  # main moves on, and what it was is gone
    house.origin.always("o/n/b", tricks.status(404, "RevisionNotFound"))
    house.agent().start().ready()
    await house.admit("m", "n1")

    await house.copy_is(digest, "Failed", reason="SourceUnavailable")

    asked = [a.path for a in house.origin.asked if "/resolve/" in a.path]
    assert asked
    assert all(f"/resolve/{commit}/" in path for path in asked)
    assert list((house.directory / "n1" / "models" / "ready").iterdir()) == []
    await house.artifact("again", "o/n")
    await house.resolved("again")
    assert (await house.read("again")).status.resolved.revision == "f" * 40


async def test_a_new_token_is_used_at_once_by_a_copy_that_was_denied(house):
    house.origin.add("o/n", {"w": WEIGHTS})

    def gate(call):
        (tricks.plain if call.handler.lower().get("authorization") == "Bearer new" else tricks.status(401))(call)

    house.origin.always("o/n/w", gate)
    await house.secret("hub", "old")
    house.controller().start().ready()
    house.agent().start().ready()
    await house.artifact("m", "o/n", secret="hub")
    digest = await house.resolved("m")
    await house.admit("m", "n1")
    await house.copy_is(digest, "Failed", reason="AccessDenied")
    await house.secret("hub", "to\nrn")
    await house.bus.wake("n1", 0)
    await eventually(lambda: house.fact_count("failed", "m", "n1"), timeout=30)

    await house.secret("hub", "new")
    await house.bus.wake("n1", 0)

    await house.copy_is(digest, "Ready")


async def test_a_finished_workload_stops_its_delivery_and_the_bytes_stay(house):
    house.origin.add("o/n", {"w": WEIGHTS})
    going, reached = threading.Event(), threading.Event()
    house.origin.will("o/n/w", tricks.wait_after(CUT, going, reached))
    house.controller().start().ready()
    house.agent().start().ready()
    await house.artifact("m", "o/n")
    digest = await house.resolved("m")
    await house.admit("m", "n1")
    await eventually(reached.is_set, timeout=30)
    partial = house.directory / "n1/models/partial" / f"sha256-{hashlib.sha256(WEIGHTS).hexdigest()}"
    await eventually(lambda: partial.stat().st_size == CUT, timeout=30)
    await house.copy_is(digest, "Downloading")

    await house.admit("m", "n1", finished=True)
    await house.bus.wake("n1", 0)

    async def gone():
        return await house.copy(digest) is None

    await eventually(gone, timeout=30)
    going.set()
    assert partial.stat().st_size == CUT
    await house.admit("m", "n1")
    await house.copy_is(digest, "Ready")
    assert house.origin.files_asked("/w")[-1].start == CUT


async def test_what_does_not_fit_beside_another_waits_for_its_turn(house):
    """The reservation counts what running deliveries still have to bring."""
    import shutil

    size = 48 << 20
    house.origin.add("o/a", {"w": content("a", size)})
    house.origin.add("o/b", {"w": content("b", size)})
    going, reached = threading.Event(), threading.Event()
    house.origin.will("o/a/w", tricks.wait_after(1 << 20, going, reached))
    # Both fit alone with half of the second to spare; the margin is for others that use this disk meanwhile.
    keep = max(0, shutil.disk_usage(house.directory).free - size * 3 // 2)
    house.controller().start().ready()
    house.agent(GPUBUS_KEEP_FREE_BYTES=str(keep)).start().ready()
    digests = {}
    for name in ("a", "b"):
        await house.artifact(name, f"o/{name}")
        digests[name] = await house.resolved(name)
    await house.admit("a", "n1")
    await eventually(reached.is_set, timeout=30)

    await house.admit("b", "n1")
    failed = await house.copy_is(digests["b"], "Failed", reason="InsufficientCapacity")

    assert failed.retry_time
    assert [a for a in house.origin.files_asked("/w") if "/o/b/" in a.path] == []
    going.set()
    await house.copy_is(digests["a"], "Ready")


async def test_a_removed_node_is_forgotten_and_a_late_fact_forgets_nobody(house):
    house.import_files("o/n", {"w": WEIGHTS})
    house.controller().start().ready()
    agent = house.agent().start().ready()
    await house.node("n1")
    await house.artifact("m", "o/n")
    digest = await house.resolved("m")
    await house.admit("m", "n1")
    await house.copy_is(digest, "Ready")

    await house.remove_node("n1", stays=True)
    await house.artifact("probe", "o/n")  # by then the fact was handled
    await house.resolved("probe")
    assert (await house.copy(digest)).state == "Ready"
    assert await house.fact_count("ready", "m", "n1") == 1

    agent.end()
    await house.remove_node("n1")

    async def gone():
        return await house.node_store("n1") is None

    await eventually(gone, timeout=30)


async def test_manifests_that_together_exceed_a_message_all_reach_the_node(house):
    """Three listings of about 3.5 MB each: the answer with all of them would be refused by the bus."""
    empty = hashlib.sha1(b"blob 0\0").hexdigest()
    for name in ("a", "b", "c"):
        house.origin.add(f"o/{name}", {})
        house.origin.listings[f"o/{name}"] = [
            {"type": "file", "path": f"{name}/{'x' * 240}/{'y' * 240}/{number:06}", "size": 0, "oid": empty}
            for number in range(6_500)
        ]
    house.controller().start().ready()
    for name in ("a", "b", "c"):
        await house.artifact(name, f"o/{name}")
        await house.admit(name, "n1")
    digests = [await house.resolved(name) for name in ("a", "b", "c")]
    known: list[str] = []

    while len(known) < 3:
        answer = await house.bus.ask(DesiredModels(node="n1", incarnation="i", known=known), timeout=20)
        assert {model.digest for model in answer.models} == set(digests)
        told = [model.digest for model in answer.models if model.files]
        assert told
        assert not set(told) & set(known)
        known += told

    answer = await house.bus.ask(DesiredModels(node="n1", incarnation="i", known=known), timeout=20)
    assert not any(model.files for model in answer.models)


async def test_an_agent_asks_on_until_it_knows_the_files_of_every_model(house):
    sizes = {"a": 4_500, "b": 4_500, "c": 3}
    empty = hashlib.sha1(b"blob 0\0").hexdigest()
    for name, count in sizes.items():
        house.origin.add(f"o/{name}", {})
        house.origin.listings[f"o/{name}"] = [
            {"type": "file", "path": f"{name}/{'x' * 240}/{'y' * 240}/{number:06}", "size": 0, "oid": empty}
            for number in range(count)
        ]
    house.controller().start().ready()
    for name in sizes:
        await house.artifact(name, f"o/{name}")
        await house.admit(name, "n1")
    digests = [await house.resolved(name) for name in sizes]
    house.agent().start().ready()

    for digest in digests:
        await house.copy_is(digest, "Ready")
