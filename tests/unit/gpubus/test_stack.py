"""The parts of `up` that decide: settings, names, ports, refusals, files."""

from __future__ import annotations

import json
import stat

import pytest

from gpubus.datadir import DataDir, read_json, resolve, write
from gpubus.environment import parse
from gpubus.refusal import Refusal
from gpubus.stack import clients, nats
from gpubus.stack.credentials import ensure, nats_users, node_user, redis_passwords
from gpubus.stack.layout import Choices, plan, process_names, settings_of
from gpubus.stack.logs import rotate, tail
from gpubus.stack.plan import STOP_PODS, STOP_SERVERS, ProcessPlan, StackPlan, env_text, load
from gpubus.stack.preparation import FleetFacts, fleet_facts, listen_address, tls_port_of
from gpubus.stack.redis import config_text
from gpubus.stack.refusals import check_space
from gpubus.up import UpOptions

SERVICES = ("discovery", "scheduler", "modelstore", "kvcache", "deployer", "gateway")


def choices(**more: object) -> Choices:
    names = process_names(workers=2, fleet=True)
    ports = {name: 20000 + number for number, name in enumerate(("gateway", "gateway-tls", "hub", "nats", "redis"))}
    ports |= {f"health.{name}": 20100 + number for number, name in enumerate(names)}
    given = {
        "host": "127.0.0.1", "ports": ports, "node": "vm", "nats_url": "nats://127.0.0.1:20003",
        "redis_url": "redis://127.0.0.1:20004/0", "nats_server": "/bin/nats-server", "redis_server": "/bin/redis-server",
        "workers": 2, "fleet": "/fleet.yaml",
    }  # fmt: skip
    return Choices(**(given | more))  # type: ignore[arg-type]


def test_the_plan_has_the_contracts_process_names(tmp_path):
    names = [name for name in plan(DataDir(tmp_path), choices()).names() if name != "migrate"]
    assert set(names) == {
        "nats-server", "redis-server", *SERVICES, "discovery-agent", "modelstore-agent", "deployer-agent",
        "gateway-worker-0", "gateway-worker-1", "fleet",
    }  # fmt: skip
    assert set(names) == set(process_names(workers=2, fleet=True))


def test_pods_stop_first_and_servers_last(tmp_path):
    stages = {process.name: process.stage for process in plan(DataDir(tmp_path), choices()).processes}
    assert {name for name, stage in stages.items() if stage == STOP_PODS} == {"deployer-agent", "fleet"}
    assert {name for name, stage in stages.items() if stage == STOP_SERVERS} == {"nats-server", "redis-server"}


def test_every_service_waits_for_the_servers_and_has_its_own_health_port(tmp_path):
    services = [process for process in plan(DataDir(tmp_path), choices()).processes if process.ready_by == "http"]
    assert {tuple(process.after) for process in services} == {("nats-server", "redis-server")}
    assert len({process.port for process in services}) == len(services)
    assert all(process.own["GPUBUS_INSTANCE"] == process.name for process in services)


def test_each_service_logs_in_as_itself_and_agents_get_no_redis(tmp_path):
    where = DataDir(tmp_path)
    for service in SERVICES:
        settings = settings_of(where, choices(), service)
        assert settings["GPUBUS_REDIS_URL"] == f"redis://{service}@127.0.0.1:20004/0"
        assert settings["GPUBUS_NATS_SEED_FILE"].endswith(f"/nats/{service}.seed")
    for agent in ("discovery-agent", "modelstore-agent", "deployer-agent"):
        settings = settings_of(where, choices(), agent)
        assert "GPUBUS_REDIS_URL" not in settings
        assert settings["GPUBUS_NATS_SEED_FILE"].endswith("/nats/node-vm.seed")
    assert settings_of(where, choices(), "gateway-worker-1")["GPUBUS_PORT"] == "20000"
    assert settings_of(where, choices(), "fleet")["GPUBUS_FLEET_FILE"] == "/fleet.yaml"


def test_an_external_redis_without_users_is_used_as_given(tmp_path):
    given = choices(redis_url="rediss://bob:secret@example.net/2", redis_users=False)
    settings = settings_of(DataDir(tmp_path), given, "scheduler")
    assert settings["GPUBUS_REDIS_URL"] == "rediss://bob:secret@example.net/2"
    assert "GPUBUS_REDIS_PASSWORD_FILE" not in settings


def test_a_plan_is_read_back_as_it_was_written(tmp_path):
    where = DataDir(tmp_path)
    written = StackPlan(
        [ProcessPlan("a", ["x"], "nats", 1, after=["b"], own={"K": "v"}), ProcessPlan("b", ["y"], "exit")]
    )
    written.write(where)
    assert load(where) == written
    where.plan.write_text('{"processes": [{"name":')
    assert load(where).processes == []


def test_an_env_file_cannot_hold_white_space():
    assert parse(env_text({"GPUBUS_B": "2=3", "GPUBUS_A": "1"})) == {"GPUBUS_A": "1", "GPUBUS_B": "2=3"}
    with pytest.raises(ValueError, match="GPUBUS_A"):
        env_text({"GPUBUS_A": "two words"})


@pytest.mark.parametrize(
    ("options", "port"),
    [
        pytest.param(UpOptions(), 8081, id="next"),
        pytest.param(UpOptions(port=0), 0, id="both-free"),
        pytest.param(UpOptions(port=0, tls_port=9443), 9443, id="named"),
        pytest.param(UpOptions(tls_port=0), 0, id="free"),
    ],
)
def test_the_tls_port_follows_the_port(options, port):
    assert tls_port_of(options) == port


@pytest.mark.parametrize(
    ("text", "address"), [("10.0.0.7", ("10.0.0.7", 0)), ("host:4222", ("host", 4222)), ("fe80::1", ("fe80::1", 0))]
)
def test_listen_takes_an_address_with_or_without_port(text, address):
    assert listen_address(text) == address


@pytest.mark.parametrize("text", ["", ":4222", "host:port"])
def test_listen_refuses_what_is_no_address(text):
    with pytest.raises(Refusal, match="no ADDR"):
        listen_address(text)


def test_a_full_disk_is_refused_in_one_sentence(tmp_path):
    with pytest.raises(Refusal, match=r"^The disk of .* is full: \d+ MiB are free, \d+ are needed; [^\n]*$"):
        check_space(tmp_path / "not" / "there", least=1 << 60)


def test_credentials_are_made_once_and_private(tmp_path):
    where = DataDir(tmp_path)
    ensure(where, (node_user("vm"),))
    before = (nats_users(where), redis_passwords(where), where.admin_token.read_text())
    ensure(where, (node_user("vm"),))
    assert (nats_users(where), redis_passwords(where), where.admin_token.read_text()) == before
    assert set(before[0]) == {*SERVICES, "admin", "node-vm"}
    assert set(before[1]) == {*SERVICES, "admin"}
    assert all(key.startswith("U") for key in before[0].values())
    files = [path for path in where.run.rglob("*") if path.is_file()]
    assert {stat.S_IMODE(path.stat().st_mode) for path in files} == {0o600}


@pytest.mark.parametrize("name", ["", "Upper", "a b", "../x", "a/b", "a.", "-a", "x" * 254, "fleet"])
def test_bad_node_names_get_no_credentials(name):
    with pytest.raises(Refusal):
        node_user(name)


def test_the_nats_configuration_can_be_made_again_with_one_user_more(tmp_path):
    where = DataDir(tmp_path)
    ensure(where, ())
    nats.write_config(where, nats.NatsSettings(20003, strict=True, fleet=("a10g-0",)), nats_users(where))
    text = (where.run / "nats" / "nats.conf").read_text()
    assert 'sync_interval: "always"' in text
    assert "max_payload: 8388608" in text
    assert "tls {" not in text
    ensure(where, (node_user("rack-7"),))
    again = nats.config_text(where, nats.kept(where), nats_users(where))
    assert nats_users(where)["node-rack-7"] not in text
    assert nats_users(where)["node-rack-7"] in again


def test_listening_for_others_keeps_loopback_plain_and_asks_others_for_tls(tmp_path):
    settings = nats.NatsSettings(4222, "0.0.0.0", "192.0.2.7:4222")
    text = nats.config_text(DataDir(tmp_path), settings, {})
    assert 'client_advertise: "192.0.2.7:4222"' in text
    assert "allow_non_tls: true" in text
    assert 'sync_interval: "10s"' in text


def test_redis_syncs_every_commit_and_never_evicts(tmp_path):
    text = config_text(DataDir(tmp_path), 20004)
    for line in ("appendonly yes", "appendfsync always", "maxmemory-policy noeviction", "bind 127.0.0.1", 'save ""'):
        assert f"{line}\n" in text


def test_client_files(tmp_path):
    where = DataDir(tmp_path)
    ensure(where, ())
    clients.write_env(where, clients.exports(where, "0.0.0.0", {"gateway": 8080}, "nats://127.0.0.1:1"))
    told = where.exports()
    assert told["OPENAI_BASE_URL"] == "http://127.0.0.1:8080/v1"
    assert where.env.read_text().startswith("export GPUBUS_URL='http://127.0.0.1:8080'\n")
    where.ca.parent.mkdir()
    where.ca.write_text("CA")
    clients.write_kubeconfig(where, "::1", 8081)
    body = json.loads(where.kubeconfig.read_text())
    assert body["clusters"][0]["cluster"] == {"server": "https://[::1]:8081", "certificate-authority-data": "Q0E="}
    assert body["users"][0]["user"]["token"] == where.admin_token.read_text()
    assert stat.S_IMODE(where.kubeconfig.stat().st_mode) == 0o600


def test_fleet_files_expand_to_node_names_and_bad_ones_are_refused(tmp_path):
    path = tmp_path / "fleet.yaml"
    path.write_text("nodes:\n- {name: a10g, count: 2}\n- {name: cpu}\n- {name: none, count: 0}\n")
    assert fleet_facts(path) == FleetFacts(("a10g-0", "a10g-1", "cpu"))
    assert fleet_facts(None) == FleetFacts()
    path.write_text("hub: simulated\nmodelSize: 2Gi\nnodes:\n- {name: cpu}\n")
    assert fleet_facts(path).modelstore == {"GPUBUS_SIMULATED_HUB": "true", "GPUBUS_SIMULATED_MODEL_SIZE": str(2 << 30)}
    for bad in ("nodes: [a]", "nodes: [{count: 2}]", "nodes: [{name: a, colour: red}]", "a: [", "- a"):
        path.write_text(bad)
        with pytest.raises(Refusal, match=r"^The fleet file .*\.$"):
            fleet_facts(path)


def test_the_data_dir_is_the_option_then_the_variable_then_the_home(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", "/home/bob")
    monkeypatch.delenv("GPUBUS_DATA_DIR", raising=False)
    assert str(resolve().root) == "/home/bob/.local/share/gpubus"
    monkeypatch.setenv("GPUBUS_DATA_DIR", "/srv/gpubus")
    assert str(resolve().root) == "/srv/gpubus"
    assert resolve(str(tmp_path)).root == tmp_path


def test_files_are_replaced_whole_and_leave_nothing_beside(tmp_path):
    write(tmp_path / "a", "one")
    write(tmp_path / "a", "two", 0o644)
    assert (tmp_path / "a").read_text() == "two"
    assert [path.name for path in tmp_path.iterdir()] == ["a"]
    (tmp_path / "a").write_text("{")
    assert read_json(tmp_path / "a") == {} == read_json(tmp_path / "b")


def test_logs_over_their_cap_are_copied_and_cut(tmp_path):
    where = DataDir(tmp_path)
    where.logs.mkdir()
    with where.log("scheduler").open("a") as writer:
        writer.write("x" * 100 + "\n")
        writer.flush()
        where.log("gateway").write_text("short\n")
        assert rotate(where, cap=50) == ["scheduler.log"]
        writer.write("after\n")
    assert where.log("scheduler").read_text() == "after\n"
    assert (where.logs / "scheduler.log.1").stat().st_size == 101
    assert tail(where.log("gateway")) == ["short"]
    assert tail(where.log("nobody")) == []
