"""The kind registry: names, scope, owner and model of every kind that is served.

One explicit list; Redis ACLs, REST discovery, write routing and docs are generated from it.
Read next: shared/store/objects.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from shared.resources.access import ApiKey, Setting
from shared.resources.artifact import ModelArtifact, NodeModelStore
from shared.resources.base import Resource
from shared.resources.core import ConfigMap, Event, Namespace, Node, Pod, Secret
from shared.resources.deployment import ModelDeployment
from shared.resources.device import Devices
from shared.resources.instance import Instance, InstanceImagePullSecret, InstancePersistentVolume, InstanceSSHPublicKey
from shared.resources.kvcache import KVCacheBackend, KVCachePool, KVCachePoolBinding
from shared.resources.pool import InstanceType, InstanceTypeFlavor, LocalQueue
from shared.resources.workload import Workload

WORKER = "worker.gpustack.ai/v1"
KUEUE = "kueue.x-k8s.io/v1beta2"


@dataclass(frozen=True, slots=True)
class Kind:
    """One served kind."""

    kind: str
    api_version: str
    plural: str
    owner: str
    model: type[Resource]
    namespaced: bool = True
    short: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    read_only: bool = False
    """Users may not create or change it; the owner does."""
    schema: int = 1
    """Raised when a stored field changes meaning; a copy never overwrites a document of a newer schema."""
    served: bool = True
    """False: stored and validated only, Ready=False with reason NotServedYet."""

    @property
    def group(self) -> str:
        """API group; empty for core."""
        return self.api_version.rpartition("/")[0]

    @property
    def version(self) -> str:
        """API version without the group."""
        return self.api_version.rpartition("/")[2]

    @property
    def singular(self) -> str:
        """Lower-case kind."""
        return self.kind.lower()


_ALL = (
    Kind("Namespace", "v1", "namespaces", "gateway", Namespace, namespaced=False, short=("ns",)),
    Kind("Secret", "v1", "secrets", "gateway", Secret),
    Kind("ConfigMap", "v1", "configmaps", "gateway", ConfigMap, short=("cm",)),
    Kind("Event", "v1", "events", "gateway", Event, short=("ev",), read_only=True),
    Kind("Node", "v1", "nodes", "discovery", Node, namespaced=False, short=("no",)),
    Kind("Pod", "v1", "pods", "deployer", Pod, short=("po",), categories=("all",)),
    Kind("Devices", WORKER, "devices", "discovery", Devices, namespaced=False, read_only=True),
    Kind(
        "InstanceType",
        WORKER,
        "instancetypes",
        "scheduler",
        InstanceType,
        namespaced=False,
        short=("instype",),
        categories=("gpustack",),
    ),
    Kind(
        "InstanceTypeFlavor",
        WORKER,
        "instancetypeflavors",
        "scheduler",
        InstanceTypeFlavor,
        namespaced=False,
        short=("instypeflavor",),
        read_only=True,
    ),
    Kind("LocalQueue", KUEUE, "localqueues", "scheduler", LocalQueue, short=("lq",), read_only=True),
    Kind("Workload", KUEUE, "workloads", "scheduler", Workload, short=("wl",)),
    Kind(
        "ModelArtifact",
        WORKER,
        "modelartifacts",
        "modelstore",
        ModelArtifact,
        short=("mart",),
        categories=("gpustack",),
    ),
    Kind(
        "NodeModelStore",
        WORKER,
        "nodemodelstores",
        "modelstore",
        NodeModelStore,
        namespaced=False,
        short=("nms",),
        read_only=True,
    ),
    Kind(
        "KVCacheBackend",
        WORKER,
        "kvcachebackends",
        "kvcache",
        KVCacheBackend,
        namespaced=False,
        short=("kvcb",),
        served=False,
    ),
    Kind(
        "KVCachePool", WORKER, "kvcachepools", "kvcache", KVCachePool, namespaced=False, short=("kvcp",), served=False
    ),
    Kind(
        "KVCachePoolBinding",
        WORKER,
        "kvcachepoolbindings",
        "kvcache",
        KVCachePoolBinding,
        short=("kvcpb",),
        served=False,
    ),
    Kind(
        "ModelDeployment",
        WORKER,
        "modeldeployments",
        "deployer",
        ModelDeployment,
        short=("md",),
        categories=("all", "gpustack"),
    ),
    Kind(
        "Instance", WORKER, "instances", "deployer", Instance, short=("inst",), categories=("gpustack",), served=False
    ),
    Kind("InstanceSSHPublicKey", WORKER, "instancesshpublickeys", "deployer", InstanceSSHPublicKey, served=False),
    Kind(
        "InstancePersistentVolume",
        WORKER,
        "instancepersistentvolumes",
        "deployer",
        InstancePersistentVolume,
        served=False,
    ),
    Kind(
        "InstanceImagePullSecret", WORKER, "instanceimagepullsecrets", "deployer", InstanceImagePullSecret, served=False
    ),
    Kind("Setting", "gpustack.ai/v1", "settings", "gateway", Setting, short=("set",)),
    Kind("ApiKey", "gpubus.io/v1", "apikeys", "gateway", ApiKey),
)

KINDS: Mapping[str, Kind] = {k.kind: k for k in _ALL}
BY_PLURAL: Mapping[tuple[str, str], Kind] = {(k.group, k.plural): k for k in _ALL}


def owned_by(service: str) -> tuple[Kind, ...]:
    """The kinds one service owns."""
    return tuple(k for k in _ALL if k.owner == service)
