"""Settings: bounds, secrets, and how they are shown."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import Field

from shared.errors import InvalidArgument
from shared.settings import SECRET, BaseServiceSettings, describe


class Settings(BaseServiceSettings):
    api_word: str = Field(default="", description="Secret.", json_schema_extra=SECRET)
    batch: int = Field(default=5, description="Size.", ge=1, le=10)


@pytest.fixture(autouse=True)
def _clean(monkeypatch: pytest.MonkeyPatch) -> None:
    import os

    for name in list(os.environ):
        if name.startswith("GPUBUS_"):
            monkeypatch.delenv(name)


def test_every_setting_says_what_it_is():
    assert all(text for _, _, text in describe(Settings.load()))


def test_the_environment_is_read_with_our_prefix(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("GPUBUS_BATCH", "7")
    monkeypatch.setenv("GPUBUS_NODE", "n1")
    monkeypatch.setenv("BATCH", "9")

    settings = Settings.load()

    assert (settings.batch, settings.node) == (7, "n1")


@pytest.mark.parametrize(
    ("name", "value"),
    [("GPUBUS_BATCH", "11"), ("GPUBUS_BATCH", "x"), ("GPUBUS_LOG_LEVEL", "loud"), ("GPUBUS_HEALTH_PORT", "-1")],
)
def test_a_bad_value_names_its_variable(monkeypatch: pytest.MonkeyPatch, name: str, value: str):
    monkeypatch.setenv(name, value)

    with pytest.raises(InvalidArgument) as caught:
        Settings.load()

    assert [cause.field for cause in caught.value.causes] == [name]


def test_secrets_are_not_described(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("GPUBUS_API_WORD", "hunter2")
    monkeypatch.setenv("GPUBUS_REDIS_URL", "redis://me:hunter2@host:1/0")

    shown = {name: str(value) for name, value, _ in describe(Settings.load())}

    assert shown["GPUBUS_API_WORD"] == "***"
    assert shown["GPUBUS_REDIS_URL"] == "redis://me:***@host:1/0"


def test_the_password_file_fills_the_url(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    (tmp_path / "p").write_text("a/b@c\n")
    monkeypatch.setenv("GPUBUS_REDIS_URL", "redis://scheduler@host:1/0")
    monkeypatch.setenv("GPUBUS_REDIS_PASSWORD_FILE", str(tmp_path / "p"))

    settings = Settings.load()

    assert settings.redis_url_with_password == "redis://scheduler:a%2Fb%40c@host:1/0"
    assert "a/b" not in str(list(describe(settings)))


def test_two_processes_have_two_instance_names_by_default():
    assert Settings.load().instance.rpartition("-")[2].isdigit()
