"""One Pod as the command line and environment of one start.

Pure. Read next: keeper.py.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from services.deployer.domain.expand import environment, expand
from services.deployer.domain.render import fixed_port
from services.deployer.domain.running import Launch, Place
from shared.queries import WantedPod
from shared.resources.base import read_tolerant
from shared.resources.core import Container, Pod, Probe

IMAGE_NOT_USED = "ImageNotUsed"
_VISIBILITY = ("CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "ASCEND_RT_VISIBLE_DEVICES")
"""Each maker's engines read their own; a Pod sees the cards that it holds and no other."""


@dataclass(frozen=True, slots=True)
class Recipe:
    """A Pod as it was ordered, read once."""

    wanted: WantedPod
    pod: Pod

    @classmethod
    def of(cls, wanted: WantedPod) -> Recipe:
        """Fields that this version does not know are ignored."""
        return cls(wanted, read_tolerant(Pod, wanted.pod))

    @property
    def container(self) -> Container:
        """The one that runs."""
        return self.pod.spec.containers[0]

    @property
    def fixed_port(self) -> int | None:
        """The port of a command that names its own."""
        return fixed_port(self.container)

    @property
    def listens(self) -> bool:
        """Whether it has an endpoint at all."""
        return bool(self.container.ports)

    @property
    def probe(self) -> Probe | None:
        """How it is asked whether it is ready; None: it is ready once it runs."""
        return self.container.readiness_probe

    @property
    def notes(self) -> list[str]:
        """Conditions that the Pod gets for being run here."""
        return [IMAGE_NOT_USED] if self.wanted.runtime == "process" and self.container.image else []

    def launch(self, node: str, place: Place, run: int, record: Mapping[str, Any]) -> Launch:
        """The start that listens at `place`."""
        env = self._environment(node, place)
        container = self.container
        return Launch(
            uid=self.wanted.uid,
            run=run,
            place=place,
            argv=tuple(expand(text, env) for text in (*container.command, *container.args)),
            env=env,
            working_dir=container.working_dir or "",
            grace_seconds=self.pod.spec.termination_grace_period_seconds,
            engine=self.wanted.engine,
            served_model=self.wanted.served_model,
            record=record,
        )

    def _environment(self, node: str, place: Place) -> dict[str, str]:
        wanted = self.wanted
        visible = ",".join(wanted.devices)
        own = {
            "GPUBUS_HOST": place.host,
            "GPUBUS_PORT": str(place.port),
            "GPUBUS_PYTHON": sys.executable,
            "GPUBUS_REPLICA_TOKEN": place.token,
            "GPUBUS_MODEL_PATH": wanted.model_path,
            "GPUBUS_POD_NAME": wanted.name,
            "GPUBUS_POD_NAMESPACE": wanted.namespace,
            "GPUBUS_POD_UID": wanted.uid,
            "GPUBUS_NODE": node,
            **dict.fromkeys(_VISIBILITY, visible),
        }
        return environment(own, ((variable.name, variable.value or "") for variable in self.container.env))
