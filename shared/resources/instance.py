"""Workspaces and what they use. Stored and validated; not served yet.

Facts: the reference operator's sections 2.5 and 8. Read next: services/deployer/domain/rules.py.
"""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field

from shared.resources.base import Model, Quantity, Resource, Status

_SSH_KEY = re.compile(
    r"(ssh-ed25519|ssh-rsa|ecdsa-sha2-nistp(256|384|521)|sk-[a-z0-9@.-]+) [A-Za-z0-9+/]+={0,3}( [^\n\r]*)?", re.ASCII
)


def _ssh_key(value: str) -> str:
    if not _SSH_KEY.fullmatch(value.strip()):
        raise ValueError(
            "not a public key; paste one line of an authorized_keys file, such as `ssh-ed25519 AAAA... you@host`"
        )
    return value


class NameRef(Model):
    """Another object in the same namespace."""

    name: str = Field(min_length=1, max_length=253)


class InstanceResources(Model):
    """What the workspace asks for."""

    accelerator: Quantity | None = None
    accelerator_shared: bool | None = None
    accelerator_sliced_memory_percentage: int | None = Field(default=None, ge=0, le=100)
    accelerator_sliced_cores_percentage: int | None = Field(default=None, ge=0, le=100)
    accelerator_partitioned_profile: str | None = Field(default=None, max_length=64)
    interface: int | None = Field(default=None, ge=0)
    cpu: Quantity | None = None
    ram: Quantity | None = None
    local_storage: Quantity | None = None


class EphemeralVolume(Model):
    """Goes with the workspace."""

    capacity: Quantity


class InstanceVolume(Model):
    """Where /workspace lives."""

    ephemeral: EphemeralVolume | None = None
    persistent: dict[str, Any] | None = None


class InstanceSpec(Model):
    """A workspace."""

    type: str = Field(min_length=1, max_length=253, description="An InstanceType.")
    image: str = Field(min_length=1, max_length=512)
    display_name: str = Field(default="", max_length=64)
    description: str = Field(default="", max_length=1024)
    command: list[str] = Field(default_factory=list)
    args: list[str] = Field(default_factory=list)
    env: list[dict[str, Any]] = Field(default_factory=list)
    ports: list[dict[str, Any]] = Field(default_factory=list)
    ssh_public_key: NameRef | None = None
    image_pull_secret: NameRef | None = None
    resources: InstanceResources = Field(default_factory=InstanceResources)
    volume: InstanceVolume | None = None
    privileged: bool | None = None
    stop: bool = False
    model: dict[str, Any] | None = None


class Instance(Resource):
    """A workspace."""

    spec: InstanceSpec
    status: Status = Field(default_factory=Status)


class InstanceSSHPublicKeySpec(Model):
    """One public key."""

    data: Annotated[str, Field(min_length=1, max_length=16384), AfterValidator(_ssh_key)]


class InstanceSSHPublicKey(Resource):
    """Who may enter."""

    spec: InstanceSSHPublicKeySpec
    status: Status = Field(default_factory=Status)


class InstancePersistentVolumeSpec(Model):
    """A volume that outlives workspaces."""

    capacity: Quantity
    storage_class_name: str = ""
    access_mode: Literal["ReadWriteOnce", "ReadWriteMany", "ReadOnlyMany"] = "ReadWriteOnce"


class InstancePersistentVolume(Resource):
    """A volume that outlives workspaces."""

    spec: InstancePersistentVolumeSpec
    status: Status = Field(default_factory=Status)


class InstanceImagePullSecretSpec(Model):
    """Registry credentials."""

    registry: str = Field(min_length=1, max_length=253)
    username: str = ""
    password: str = ""


class InstanceImagePullSecret(Resource):
    """Registry credentials."""

    spec: InstanceImagePullSecretSpec
    status: Status = Field(default_factory=Status)
