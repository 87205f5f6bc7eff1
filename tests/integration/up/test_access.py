"""The command on a running stack's bus: node credentials, TLS for other hosts, facts, dead letters, exported users."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from gpubus.access import export, node_credentials
from gpubus.agent import read
from gpubus.bus import admin_bus
from gpubus.datadir import DataDir, read_json
from gpubus.down import down
from gpubus.environment import code_root
from gpubus.refusal import Refusal
from gpubus.up import Running, UpOptions, start
from shared import subjects
from shared.bus.client import BusClient
from shared.bus.dead_letter import DeadLetter, bury
from shared.errors import Unavailable
from shared.events.device import NodeJoined
from shared.queries import Heartbeat
from tests.support.servers import free_port
from tests.support.wait import eventually, eventually_sync

_STANDIN = str(Path(__file__).with_name("standin.py"))


@contextmanager
def running(root: Path, **more: object) -> Iterator[Running]:
    where = DataDir(root)
    try:
        chosen = UpOptions(port=0, workers=1, command=lambda *_: [sys.executable, _STANDIN, "good"], **more)  # type: ignore[arg-type]
        yield start(where, chosen, lambda _: None)
    finally:
        down(where)


@pytest.fixture(scope="module")
def up(tmp_path_factory) -> Iterator[Running]:
    with running(tmp_path_factory.mktemp("stack")) as stack:
        yield stack


def gpubus(up: Running, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "gpubus.main", *words, "--data-dir", str(up.where.root)],
        capture_output=True, text=True, check=False, cwd=code_root(),
    )  # fmt: skip


async def test_a_nodes_credentials_let_it_speak_for_itself_on_the_running_server(up, tmp_path):
    issued = gpubus(up, "node", "credentials", "rack-7")
    assert issued.returncode == 0
    (tmp_path / "rack-7").write_text(issued.stdout)
    membership = read(tmp_path / "rack-7")
    assert (membership.node, membership.user, membership.ca) == ("rack-7", "node-rack-7", "")
    (tmp_path / "seed").write_text(membership.seed)

    async def join() -> BusClient | None:
        try:
            url = up.prepared.choices.nats_url
            return await BusClient.connect(url=url, user=membership.user, seed_file=tmp_path / "seed", timeout=1.0)
        except Unavailable:
            return None

    node = await eventually(join)
    heard: list[str] = []
    async with admin_bus(str(up.where.root)) as bus:
        await bus.on_telemetry(Heartbeat, lambda beat: heard.append(beat.source))
        await node.tell(Heartbeat(source="other", incarnation="x"))
        await node.tell(Heartbeat(source="rack-7", incarnation="x"))
        await eventually(lambda: heard)
    await node.close()
    assert heard == ["rack-7"]


def test_node_credentials_need_a_stack_and_a_name(up, tmp_path):
    told = gpubus(up, "node", "credentials", "Rack 7")
    assert (told.returncode, told.stdout) == (1, "")
    assert "cannot name a node" in told.stderr
    with pytest.raises(Refusal, match="No stack was ever started"):
        node_credentials("rack-7", str(tmp_path))


async def test_other_hosts_join_over_tls_while_loopback_stays_plain(tmp_path):
    port = free_port()
    with running(tmp_path / "stack", listen=f"127.0.0.1:{port}") as up:
        assert read_json(up.where.ports)["nats"] == port
        body = json.loads(node_credentials("rack-7", str(up.where.root)))
        (tmp_path / "ca").write_text(body["ca"])
        (tmp_path / "seed").write_text(body["seed"])

        async def join() -> BusClient | None:
            try:
                return await BusClient.connect(
                    url=f"nats://127.0.0.1:{port}", user=body["user"], seed_file=tmp_path / "seed", timeout=1.0,
                    ca_file=tmp_path / "ca",
                )  # fmt: skip
            except Unavailable:
                return None

        joined = await eventually(join)
        assert joined.connection._transport._io_writer.get_extra_info("cipher")
        await joined.close()
        async with admin_bus(str(up.where.root)) as bus:
            assert bus.connected


def test_facts_are_shown_as_they_happen(up):
    tail = subprocess.Popen(
        [sys.executable, "-m", "gpubus.main", "events", "node", "--data-dir", str(up.where.root)],
        stdout=subprocess.PIPE, text=True, cwd=code_root(),
    )  # fmt: skip
    envelope = {
        "type": "gpubus.node.joined.v1",
        "time": "2026-11-30T12:34:56Z",
        "data": {"name": "vm", "reason": "New"},
    }
    script = (
        "import asyncio, sys\nfrom gpubus.bus import admin_bus\n"
        "async def main():\n async with admin_bus(sys.argv[1]) as bus:\n"
        "  for _ in range(100):\n   await bus.connection.publish(sys.argv[2], sys.argv[3].encode()); await asyncio.sleep(0.1)\n"
        "asyncio.run(main())"
    )
    told = subprocess.Popen(
        [sys.executable, "-c", script, str(up.where.root), subjects.fact(NodeJoined, "", "vm"), json.dumps(envelope)],
        cwd=code_root(),
    )  # fmt: skip
    try:
        assert tail.stdout.readline() == f"12:34:56  {'node.joined':<25} {'vm':<40} New\n"
    finally:
        for process in (tail, told):
            process.kill()
            process.wait()
        tail.stdout.close()


async def test_dead_letters_are_listed_and_redriven_once(up):
    assert gpubus(up, "dead-letters", "list").stdout == "no dead letters\n"
    letter = DeadLetter(
        service="scheduler", handler="on_node_joined", subject=subjects.fact(NodeJoined, "", "vm"), stream="FACTS_DISCOVERY",
        stream_sequence=7, code="Malformed", reason="not JSON", attempts=1, first_time="2026-11-30T12:00:00Z",
        last_time="2026-11-30T12:00:01Z", data=b"{",
    )  # fmt: skip
    async with admin_bus(str(up.where.root)) as bus:
        await bury(bus.connection, letter)

    listed = gpubus(up, "dead-letters", "list").stdout
    assert "scheduler/on_node_joined" in listed
    assert "not JSON" in listed
    assert gpubus(up, "dead-letters", "redrive").returncode == 1
    assert gpubus(up, "dead-letters", "redrive", "999").returncode == 1
    again = gpubus(up, "dead-letters", "redrive", "--all")
    assert (again.returncode, again.stdout) == (0, "1: given to scheduler/on_node_joined again\n")
    assert gpubus(up, "dead-letters", "redrive", "--all").stdout == ""


def test_exported_users_can_be_installed_elsewhere(up, tmp_path):
    text = export(str(up.where.root))
    block, _, acl = text.partition("# Redis:")
    (tmp_path / "nats.conf").write_text(f"listen: 127.0.0.1:-1\n{block}")
    binary = read_json(up.where.plan)["processes"][0]["argv"][0]
    checked = subprocess.run([binary, "-t", "-c", tmp_path / "nats.conf"], capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stderr
    assert "user default off" in acl
    assert not any(password in text for password in [p.read_text() for p in up.where.run.rglob("*.password")])


def test_credentials_of_another_system_are_refused(tmp_path):
    with pytest.raises(Refusal, match="cannot be read"):
        read(tmp_path / "none")
    for text in ("", "{}", "[]", '{"node": 1}'):
        (tmp_path / "bad").write_text(text)
        with pytest.raises(Refusal, match="holds no credentials"):
            read(tmp_path / "bad")


def test_without_a_stack_the_way_out_is_named(tmp_path):
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("GPUBUS_", "NATS_"))}
    for words in (["get", "pods"], ["events"], ["chat", "m", "-p", "hi"], ["dead-letters", "list"]):
        told = subprocess.run(
            [sys.executable, "-m", "gpubus.main", *words, "--data-dir", str(tmp_path)], capture_output=True, text=True,
            check=False, cwd=code_root(), env=environment,
        )  # fmt: skip
        assert told.returncode == 1
        assert told.stderr.startswith(f"gpubus: No stack was ever started in {tmp_path}: run `gpubus up`")


def test_a_gateway_that_is_gone_is_named(up):
    eventually_sync(lambda: not gpubus(up, "get", "pods").stdout)
    told = gpubus(up, "get", "pods")
    assert told.stderr.startswith(f"gpubus: No gateway answers at {up.prepared.url}")
