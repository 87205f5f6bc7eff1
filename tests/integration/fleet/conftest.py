"""The house of the discovery tests, with a fleet process in it."""

from __future__ import annotations

import signal
from typing import Any

import pytest
import yaml

from tests.integration.discovery.conftest import House, house
from tests.support.children import Child

__all__ = ["house"]

CARDS = {"manufacturer": "nvidia", "product": "NVIDIA A10G", "memory": "23028Mi", "cores": 80}


class FleetProcess:
    """A fleet file and the process that plays it."""

    def __init__(self, house: House) -> None:
        self.path = house.directory / "fleet.yaml"
        self.child: Child = house.child("fleet", ("gpubus.fleet",), GPUBUS_FLEET_FILE=str(self.path))

    def write(self, *nodes: dict[str, Any], **more: Any) -> FleetProcess:
        self.path.write_text(yaml.safe_dump({"nodes": list(nodes), **more}))
        return self

    def reread(self) -> None:
        self.child.send(signal.SIGHUP)


@pytest.fixture
def fleet(house: House) -> FleetProcess:
    return FleetProcess(house)
