"""Settings of every process: one frozen class per service on this base, read from the environment once.

Owns the prefix `GPUBUS_`, bounds and redaction. Nobody else reads the environment. Secrets come from files.
Read next: shared/service.py.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal, Self
from urllib.parse import quote, urlsplit, urlunsplit

from pydantic import Field, ValidationError
from pydantic.config import JsonDict
from pydantic_settings import BaseSettings, SettingsConfigDict

from shared.errors import Cause, InvalidArgument

PREFIX = "GPUBUS_"
SECRET: JsonDict = {"secret": True}
"""`Field(json_schema_extra=SECRET)` marks a value that `describe` must not show."""

Port = Annotated[int, Field(ge=0, le=65535)]


class BaseServiceSettings(BaseSettings):
    """What every process needs; a service's own class adds to it."""

    model_config = SettingsConfigDict(env_prefix=PREFIX, env_nested_delimiter="__", frozen=True, extra="ignore")

    nats_url: str = Field(default="nats://127.0.0.1:4222", description="NATS servers, comma separated.", min_length=1)
    nats_seed_file: Path | None = Field(
        default=None, description="File with this user's NKey seed; none for a server without users."
    )
    nats_ca_file: Path | None = Field(
        default=None,
        description="CA of a NATS server on another host; with it the connection is TLS from its first byte.",
    )
    redis_url: str = Field(
        default="redis://127.0.0.1:6379/0",
        description="Redis with the ACL user's name; agents have none.",
        json_schema_extra=SECRET,
    )
    redis_password_file: Path | None = Field(default=None, description="File with the ACL user's password.")
    instance: str = Field(
        default_factory=lambda: f"{socket.gethostname()}-{os.getpid()}",
        description="This copy's name in logs, traces and leases; unique among copies, the same after a supervised restart.",
        min_length=1,
        max_length=128,
    )
    health_port: Port = Field(
        default=0, description="Port of /livez /readyz /metrics on health_host; 0 picks a free one."
    )
    health_host: str = Field(default="127.0.0.1", description="Address of the health listener.")
    data_dir: Path = Field(default=Path(), description="Where this process may keep files.")
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        default="info", description="Least level that is written."
    )
    faults: str = Field(
        default="",
        description="Armed fault points (tests): point=kill|stop|exit[@flagfile] or *@directory, comma separated.",
    )
    traces: str = Field(default="", description="Where spans go: empty (off), file:///path or an OTLP/HTTP endpoint.")
    node: str = Field(default="", description="Name of the node an agent speaks for.", max_length=253)
    connect_seconds: float = Field(
        default=30.0, description="How long to wait for NATS and Redis at start.", ge=0.1, le=600
    )
    drain_seconds: float = Field(default=20.0, description="Budget of an orderly stop.", ge=0.1, le=600)

    @classmethod
    def load(cls) -> Self:
        """Read the environment.

        Raises:
            InvalidArgument: a value is missing or out of bounds; the message names the variable.
        """
        try:
            return cls()
        except ValidationError as error:
            causes = tuple(
                Cause(PREFIX + "__".join(str(part) for part in item["loc"]).upper(), item["msg"])
                for item in error.errors()
            )
            raise InvalidArgument("; ".join(f"{cause.field}: {cause.message}" for cause in causes), causes) from error

    @property
    def redis_url_with_password(self) -> str:
        """`redis_url` with the password of `redis_password_file` filled in."""
        if self.redis_password_file is None:
            return self.redis_url
        parts = urlsplit(self.redis_url)
        host = parts.netloc.rpartition("@")[2]
        secret = quote(self.redis_password_file.read_text().strip(), safe="")
        return urlunsplit(parts._replace(netloc=f"{parts.username or ''}:{secret}@{host}"))


def describe(settings: BaseServiceSettings) -> Iterator[tuple[str, Any, str]]:
    """(variable, value, description) of every setting, secrets redacted; `--print-settings` prints it."""
    for name, field in type(settings).model_fields.items():
        value = getattr(settings, name)
        extra = field.json_schema_extra
        if isinstance(extra, dict) and extra.get("secret"):
            value = _redacted(value)
        yield f"{PREFIX}{name.upper()}", value, field.description or ""


def _redacted(value: Any) -> str:
    if isinstance(value, str) and "://" in value:
        parts = urlsplit(value)
        if parts.password:
            netloc = f"{parts.username or ''}:***@{parts.netloc.rpartition('@')[2]}"
            return urlunsplit(parts._replace(netloc=netloc))
        return value
    return "***" if value else ""
