"""docker-compose.yml starts the same modules as `gpubus up`, as podman-compose's own parser reads it."""

from __future__ import annotations

import importlib.util
import subprocess
import sys

import pytest
import yaml

from gpubus.access import write_for_containers
from gpubus.datadir import DataDir
from gpubus.environment import code_root
from gpubus.stack.layout import process_names
from gpubus.stack.nats import find_server

COMPOSE = code_root() / "docker-compose.yml"
DOCKERFILE = code_root() / "deploy" / "docker" / "Dockerfile"


@pytest.fixture(scope="module")
def services(tmp_path_factory) -> dict[str, dict]:
    if importlib.util.find_spec("podman_compose") is None:
        pytest.skip("podman-compose is not installed here; the development dependencies bring it")
    podman = tmp_path_factory.mktemp("bin") / "podman"
    podman.write_text("#!/bin/sh\necho 'podman version 5.0.0'\n")
    podman.chmod(0o755)
    told = subprocess.run(
        [sys.executable, "-m", "podman_compose", "--podman-path", podman, "-f", COMPOSE, "config"],
        capture_output=True, text=True, check=True, cwd=code_root(),
    )  # fmt: skip
    return yaml.safe_load(told.stdout)["services"]


def test_compose_runs_every_process_of_up(services):
    wanted = {name.removesuffix("-server").removesuffix("-0") for name in process_names(workers=1, fleet=False)}
    assert wanted | {"credentials", "migrate"} == set(services)
    for name in wanted - {"nats", "redis", "gateway-worker"}:
        service, _, agent = name.partition("-")
        assert services[name]["command"] == [f"services.{service}", *([agent] if agent else [])]
    assert services["gateway-worker"]["command"] == ["services.gateway", "worker"]


def test_every_lasting_service_has_a_health_check_and_waits_for_what_it_needs(services):
    for name, service in services.items():
        if name in {"credentials", "migrate"}:
            assert service["healthcheck"] == {"disable": True}
            continue
        assert service["healthcheck"]["test"]
        assert service["depends_on"]


def test_each_service_has_its_own_users(services):
    for name in ("discovery", "scheduler", "modelstore", "kvcache", "deployer", "gateway"):
        environment = services[name]["environment"]
        assert environment["GPUBUS_NATS_SEED_FILE"] == f"/data/run/nats/{name}.seed"
        assert environment["GPUBUS_REDIS_URL"] == f"redis://{name}@redis:6379/0"
    for agent in ("discovery-agent", "modelstore-agent", "deployer-agent"):
        assert "GPUBUS_REDIS_URL" not in services[agent]["environment"]


def test_the_configurations_that_compose_mounts_are_valid(tmp_path):
    where = DataDir(tmp_path)
    write_for_containers(where, "compose")
    checked = subprocess.run(
        [find_server(), "-t", "-c", where.run / "nats" / "nats.conf"], capture_output=True, text=True, check=False
    )
    assert checked.returncode == 0, checked.stderr
    assert "bind 0.0.0.0\n" in (where.run / "redis" / "redis.conf").read_text()
    assert (where.run / "nats" / "node-compose.seed").exists()
    assert where.admin_token.exists()


def test_the_image_recipe_copies_every_package_and_installs_from_the_lock():
    text = DOCKERFILE.read_text()
    assert "--require-hashes" in text
    assert "ARG SERVICE" in text
    for folder in ("services", "shared", "gpubus"):
        assert f"COPY {folder} {folder}" in text
    assert "USER gpubus" in text
