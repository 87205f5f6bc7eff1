"""Keys, settings: who may use what, and the few switches of a running system.

Read next: services/gateway/domain/auth.py.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from shared.resources.base import Model, Resource, Status, Timestamp

SETTINGS_NAMESPACE = "gpustack-system"

SETTINGS: dict[str, str] = {
    "container-registry": "",
    "container-namespace": "",
    "image-pull-policy": "",
    "instance-type-derived-from-node": "true",
    "instance-type-mixed-on-node": "true",
    "instance-type-aware-cpu-manufacturer": "false",
    "instance-type-drain-when-no-flavors": "true",
    "instance-general-resources-overcommit": "true",
    "model-artifact-huggingface-endpoint": "https://huggingface.co",
    "model-artifact-modelscope-endpoint": "https://www.modelscope.cn",
    "model-artifact-https-proxy": "",
    "model-artifact-no-proxy": "",
    "model-artifact-revalidate-interval": "24h",
    "model-artifact-delivery-mode": "Node",
    "model-store-high-watermark": "80",
    "model-store-low-watermark": "70",
    "model-store-download-concurrency": "8",
    "model-store-download-bandwidth": "0",
    "model-store-peer-sync": "true",
    "node-management-manual": "false",
    "workload-fit-affinity": "true",
}
"""The fixed catalogue and its defaults; names as the reference operator has them."""


class SettingSpec(Model):
    """The value an administrator wrote."""

    value: str = Field(default="", max_length=4096)


class SettingStatus(Status):
    """The value in force."""

    value: str = ""
    default: str = ""


class Setting(Resource):
    """One switch; the catalogue of names is fixed."""

    spec: SettingSpec = Field(default_factory=SettingSpec)
    status: SettingStatus = Field(default_factory=SettingStatus)


class ApiKeySpec(Model):
    """What the key may do."""

    role: Literal["admin", "editor", "viewer", "model-user"] = "model-user"
    models: list[str] = Field(
        default_factory=list, max_length=256, description="Model names; empty means all of the namespace."
    )
    expires: Timestamp | None = None
    disabled: bool = False
    description: str = Field(default="", max_length=1024)
    hash: str = Field(default="", description="Keyed hash of the secret; set by the gateway, the secret is shown once.")
    prefix: str = Field(default="", description="The first characters, to tell keys apart.")


class ApiKeyStatus(Status):
    """Condition Ready; `token` is present once, in the answer to create."""

    last_used: Timestamp | None = None
    token: str | None = None


class ApiKey(Resource):
    """A secret that opens /v1 and the resource API."""

    spec: ApiKeySpec = Field(default_factory=ApiKeySpec)
    status: ApiKeyStatus = Field(default_factory=ApiKeyStatus)
