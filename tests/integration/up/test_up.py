"""`gpubus up` with its real servers and stand-ins for the services."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import socket
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import redis

from gpubus.datadir import DataDir, read_json
from gpubus.down import down
from gpubus.environment import code_root, parse
from gpubus.refusal import Refusal
from gpubus.stack.credentials import password_file, seed_file
from gpubus.stack.refusals import is_held
from gpubus.up import Running, UpOptions, start
from shared.bus.client import BusClient
from shared.errors import Unavailable
from tests.integration.up.standins import alive, pids
from tests.support.servers import free_port
from tests.support.wait import eventually_sync

_STANDIN = str(Path(__file__).with_name("standin.py"))


def _command(*_: object) -> list[str]:
    return [sys.executable, _STANDIN, "good"]


def options(**more: object) -> UpOptions:
    return UpOptions(port=0, workers=1, command=_command, **more)  # type: ignore[arg-type]


@contextmanager
def running(root: Path, **more: object) -> Iterator[Running]:
    where = DataDir(root)
    try:
        yield start(where, options(**more), lambda _: None)
    finally:
        down(where)


def _connect(where: DataDir, user: str) -> redis.Redis:
    port = read_json(where.ports)["redis"]
    return redis.Redis(port=port, username=user, password=password_file(where, user).read_text().strip())


def test_up_starts_both_servers_and_every_process_of_the_contract(tmp_path):
    with running(tmp_path) as up:
        assert set(pids(up.where)) == {
            "supervisor", "nats-server", "redis-server", "discovery", "scheduler", "modelstore", "kvcache", "deployer",
            "gateway", "discovery-agent", "modelstore-agent", "deployer-agent", "gateway-worker-0",
        }  # fmt: skip
        ports = read_json(up.where.ports)
        assert {"gateway", "gateway-tls", "nats", "redis", "hub", "health.gateway-worker-0", "health.scheduler"} <= set(
            ports
        )
        with _connect(up.where, "admin") as link:
            told = link.config_get("*")
            assert (told["appendonly"], told["appendfsync"], told["maxmemory-policy"]) == (
                "yes",
                "always",
                "noeviction",
            )


def test_servers_take_only_generated_users(tmp_path):
    with running(tmp_path) as up:
        with redis.Redis(port=read_json(up.where.ports)["redis"]) as link, pytest.raises(redis.AuthenticationError):
            link.ping()

        async def connect(seed: Path | None) -> bool:
            url = up.prepared.choices.nats_url
            client = await BusClient.connect(url=url, user="scheduler", seed_file=seed, timeout=1.0)
            await client.close()
            return True

        assert asyncio.run(connect(seed_file(up.where, "scheduler")))
        with pytest.raises(Unavailable):
            asyncio.run(connect(None))


def test_client_files_name_the_right_places_and_are_private(tmp_path):
    with running(tmp_path) as up:
        exports = up.where.exports()
        assert exports["GPUBUS_URL"] == up.prepared.url == exports["OPENAI_BASE_URL"].removesuffix("/v1")
        assert exports["GPUBUS_TOKEN"] == exports["OPENAI_API_KEY"] == up.where.admin_token.read_text().strip()
        assert Path(exports["NATS_CREDS"]).read_text().startswith("SU")
        secret = [up.where.env, up.where.admin_token, *up.where.run.rglob("*.seed"), *up.where.run.rglob("*.password")]
        secret += [*up.where.run.glob("*.env"), *up.where.run.rglob("*.conf"), *up.where.run.rglob("*.acl")]
        assert len(secret) > 20
        assert {stat.S_IMODE(path.stat().st_mode) for path in secret} == {0o600}


def test_a_second_copy_can_be_started_from_the_env_file(tmp_path):
    with running(tmp_path) as up:
        settings = parse(up.where.env_file("scheduler").read_text())
        assert settings["GPUBUS_REDIS_URL"].startswith("redis://scheduler@127.0.0.1:")
        assert not {"GPUBUS_INSTANCE", "GPUBUS_HEALTH_PORT"} & set(settings)
        told = subprocess.run(
            f"env $(cat {up.where.env_file('scheduler')}) {sys.executable} -c 'from shared.settings import BaseServiceSettings as S;"
            f" s = S.load(); print(s.redis_url_with_password, s.nats_seed_file)'",
            shell=True, capture_output=True, text=True, check=True, cwd=code_root(),
        ).stdout  # fmt: skip
        assert password_file(up.where, "scheduler").read_text().strip() in told


@pytest.mark.parametrize("server", ["nats-server", "redis-server"])
def test_a_killed_server_comes_back_on_its_port(tmp_path, server):
    with running(tmp_path) as up:
        with _connect(up.where, "admin") as link:
            link.set("{gpubus}:kept", "yes")
        before, ports = pids(up.where)[server], read_json(up.where.ports)
        os.kill(before, signal.SIGKILL)
        eventually_sync(lambda: pids(up.where).get(server) not in {None, before})
        eventually_sync(lambda: read_json(up.where.state)["processes"][server]["state"] == "ready")
        eventually_sync(lambda: read_json(up.where.state)["processes"]["migrate"]["state"] == "done")
        assert read_json(up.where.ports) == ports
        with _connect(up.where, "admin") as link:
            assert link.get("{gpubus}:kept") == b"yes"


def test_a_host_crash_that_left_a_torn_append_only_file_is_repaired_and_told(tmp_path):
    with running(tmp_path) as up, _connect(up.where, "admin") as link:
        link.set("{gpubus}:kept", "yes")
    increment = next((tmp_path / "redis" / "appendonlydir").glob("*.incr.aof"))
    with increment.open("ab") as file:
        file.write(b"*1\r\n$5\r\nMULTI\r\n*3\r\n$3\r\nSET\r\n$12\r\n{gpubus}:cut\r\n$3\r\nyes\r\n" + b"\0" * 4096)

    with running(tmp_path) as up:
        assert len(up.notes) == 1
        assert "cut off after the last whole transaction" in up.notes[0]
        assert next((tmp_path / "redis" / "damaged").iterdir()).stat().st_size > 4096
        with _connect(up.where, "admin") as link:
            assert link.get("{gpubus}:kept") == b"yes"
            assert link.get("{gpubus}:cut") is None


def test_ports_credentials_and_data_survive_a_restart(tmp_path):
    with running(tmp_path) as up, _connect(up.where, "admin") as link:
        link.set("{gpubus}:kept", "yes")
        before = (read_json(up.where.ports), up.where.env.read_text())
    with running(tmp_path) as up, _connect(up.where, "admin") as link:
        assert (read_json(up.where.ports), up.where.env.read_text()) == before
        assert link.get("{gpubus}:kept") == b"yes"


def test_two_whole_stacks_run_side_by_side_and_one_goes_alone(tmp_path):
    with running(tmp_path / "one") as one, running(tmp_path / "two") as two:
        taken = [set(read_json(up.where.ports).values()) for up in (one, two)]
        assert not taken[0] & taken[1]
        down(one.where)
        assert all(alive(pid) for pid in pids(two.where).values())


def test_external_servers_are_used_instead_of_embedded_ones(tmp_path, nats_server, redis_server):
    with running(tmp_path, nats=nats_server.url, redis=redis_server.url) as up:
        assert not {"nats-server", "redis-server"} & set(pids(up.where))
        assert not {"nats", "redis"} & set(read_json(up.where.ports))
        settings = parse(up.where.env_file("scheduler").read_text())
        assert (settings["GPUBUS_NATS_URL"], settings["GPUBUS_REDIS_URL"]) == (nats_server.url, redis_server.url)


def test_settings_of_the_caller_reach_services_but_another_stacks_address_does_not(tmp_path, monkeypatch):
    monkeypatch.setenv("GPUBUS_LOG_LEVEL", "debug")
    monkeypatch.setenv("GPUBUS_URL", "http://elsewhere")
    with running(tmp_path) as up:
        settings = parse(up.where.env_file("scheduler").read_text())
        assert settings["GPUBUS_LOG_LEVEL"] == "debug"
        assert "GPUBUS_URL" not in settings


def _refusal(where: DataDir, **more: object) -> str:
    chosen = UpOptions(**({"port": 0, "workers": 1, "command": _command} | more))  # type: ignore[arg-type]
    with pytest.raises(Refusal) as refused:
        start(where, chosen, lambda _: None)
    assert "\n" not in refused.value.sentence
    return refused.value.sentence


def test_a_taken_port_is_refused_and_nothing_is_changed(tmp_path):
    where = DataDir(tmp_path / "fresh")
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        assert f"Port {port} on 127.0.0.1 is taken" in _refusal(where, port=port, tls_port=0)
        assert "--tls-port" in _refusal(where, port=0, tls_port=port)
    assert not where.root.exists()


def test_a_running_stacks_data_dir_is_refused_and_the_stack_goes_on(tmp_path):
    with running(tmp_path) as up:
        before = up.where.plan.read_text()
        assert re.search(r"belongs to a running stack \(supervisor pid \d+\): `gpubus down", _refusal(up.where))
        assert up.where.plan.read_text() == before
        assert is_held(up.where)


def test_a_data_dir_that_is_a_file_is_refused(tmp_path):
    (tmp_path / "file").write_text("")
    assert "is not a directory" in _refusal(DataDir(tmp_path / "file" / "below"))


def test_a_data_dir_with_white_space_is_refused(tmp_path):
    assert "white space" in _refusal(DataDir(tmp_path / "my data"))


def test_unknown_runtimes_absent_servers_and_bad_fleets_are_refused(tmp_path):
    where = DataDir(tmp_path / "fresh")
    assert "--runtime 'docker' is not one of" in _refusal(where, runtime="docker")
    assert "No NATS server answers at" in _refusal(where, nats=f"nats://127.0.0.1:{free_port()}")
    assert "No Redis server answers at" in _refusal(where, redis=f"redis://127.0.0.1:{free_port()}")
    assert "cannot be read" in _refusal(where, fleet=tmp_path / "none.yaml")
    (tmp_path / "empty.yaml").write_text("hub: simulated\n")
    assert "nodes" in _refusal(where, fleet=tmp_path / "empty.yaml")


def test_a_service_that_cannot_start_leaves_nothing_running(tmp_path):
    where = DataDir(tmp_path)
    broken = UpOptions(port=0, workers=1, command=lambda *_: [sys.executable, _STANDIN, "broken"])
    with pytest.raises(Refusal) as refused:
        start(where, broken, lambda _: None)
    assert "while starting (exit code 3)" in refused.value.sentence
    assert not is_held(where)


def test_the_command_line_refuses_in_one_sentence(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        told = subprocess.run(
            [sys.executable, "-m", "gpubus.main", "up", "--detach", "--data-dir", tmp_path / "fresh", "--port", str(port)],
            capture_output=True, text=True, check=False, cwd=code_root(),
        )  # fmt: skip
    assert told.returncode == 1
    assert told.stderr.count("\n") == 1
    assert told.stderr.startswith(f"gpubus: Port {port} on 127.0.0.1 is taken")


def test_down_says_when_nothing_runs_and_status_exits_1(tmp_path):
    for verb, code in (("down", 0), ("status", 1)):
        told = subprocess.run(
            [sys.executable, "-m", "gpubus.main", verb, "--data-dir", tmp_path], capture_output=True, text=True, check=False,
            cwd=code_root(),
        )  # fmt: skip
        assert (told.returncode, told.stdout) == (code, f"not running: {tmp_path}\n")


def test_status_shows_every_process(tmp_path):
    with running(tmp_path) as up:
        told = subprocess.run(
            [sys.executable, "-m", "gpubus.main", "status", "--data-dir", tmp_path], capture_output=True, text=True,
            check=True, cwd=code_root(),
        ).stdout  # fmt: skip
        for name, pid in pids(up.where).items():
            assert re.search(rf"^{name} +{pid} +\S+ +yes", told, re.MULTILINE), told
        assert json.loads(up.where.state.read_text())["phase"] == "ready"


_FOREGROUND = """
import sys
from pathlib import Path
from gpubus.datadir import DataDir
from gpubus.show_up import run
from gpubus.up import UpOptions
command = lambda *_: [sys.executable, sys.argv[2], sys.argv[3]]
try:
    sys.exit(run(DataDir(Path(sys.argv[1])), UpOptions(port=0, workers=1, command=command), detach=False))
except KeyboardInterrupt:
    sys.exit(130)
"""


@contextmanager
def foreground(root: Path, kind: str = "good") -> Iterator[subprocess.Popen[str]]:
    words = [sys.executable, "-c", _FOREGROUND, root, _STANDIN, kind]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True, cwd=code_root()) as process:
        try:
            yield process
        finally:
            process.kill()
            down(DataDir(root))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_the_foreground_command_takes_everything_down_when_it_is_told_to_end(tmp_path, number):
    with foreground(tmp_path) as process:
        eventually_sync(lambda: read_json(DataDir(tmp_path).state).get("phase") == "ready")
        eventually_sync(lambda: "Ctrl-C" in process.stdout.readline())
        process.send_signal(number)
        assert process.stdout.read() == "stopped\n"
        assert process.wait() == 0
        assert not is_held(DataDir(tmp_path))


def test_the_foreground_command_ends_when_the_stack_was_stopped_elsewhere(tmp_path):
    with foreground(tmp_path) as process:
        eventually_sync(lambda: "Ctrl-C" in process.stdout.readline())
        down(DataDir(tmp_path))
        assert process.stdout.read() == "stopped by another `gpubus down`\n"
        assert process.wait() == 0


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_start_that_is_interrupted_leaves_nothing_running(tmp_path, number):
    with foreground(tmp_path, "never-ready") as process:
        eventually_sync(lambda: "scheduler" in pids(DataDir(tmp_path)))
        process.send_signal(number)
        process.stdout.read()
        assert process.wait() == 130
        assert not is_held(DataDir(tmp_path))
