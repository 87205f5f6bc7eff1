"""The NVIDIA driver against a stub of its library, in a child process so that no other test sees it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parents[2]


def tell(library: Path | None, *moods: dict[str, object]) -> list[dict]:
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    env["LD_LIBRARY_PATH"] = str(library) if library else ""
    done = subprocess.run(
        [sys.executable, str(HERE / "nvml_story.py"), *map(json.dumps, moods)],
        env=env, capture_output=True, text=True, timeout=50, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    if shutil.which("gcc") is None:
        pytest.skip("no gcc to build the stub of libnvidia-ml")
    folder = tmp_path_factory.mktemp("nvml")
    out = folder / "libnvidia-ml.so.1"
    command = ["gcc", "-shared", "-fPIC", "-Wl,-soname,libnvidia-ml.so.1", "-o", str(out), str(HERE / "nvml_stub.c")]
    subprocess.run(command, check=True, capture_output=True)
    return folder


def cards(told: dict) -> dict[str, dict]:
    return {card["id"]: card["status"] for group in told["groups"] for card in group["accelerators"]}


def test_a_host_without_the_library_has_no_cards_and_imports_nothing():
    for told in tell(None, {}, {}):
        assert told == {"groups": [], "imported": False}


def test_a_library_without_a_driver_means_no_cards(library):
    assert tell(library, {"NODRIVER": 1, "GPUS": 2})[0]["groups"] == []


def test_cards_are_described(library):
    (told,) = tell(library, {"GPUS": 3})

    a10g, t4 = sorted(told["groups"], key=lambda group: group["id"])
    assert (a10g["id"], a10g["memory"], a10g["cores"], a10g["compute_capability"]) == ("a10g", 23028, 80, "8.6")
    assert (a10g["driver_version"], a10g["runtime_version"], a10g["family"]) == ("560.35.03", "12.6", "Ampere")
    assert [card["id"] for card in a10g["accelerators"]] == ["GPU-00000000", "GPU-00000001"]
    assert a10g["accelerators"][1]["physical_indexes"] == [6]
    assert a10g["accelerators"][1]["topology"]["pci_bus_id"] == "0000:02:00.0"
    assert (t4["id"], t4["cores"], t4["family"]) == ("tesla-t4", 40, "Turing")
    assert not any(status["unhealthy"] for status in cards(told).values())


def test_a_card_that_fell_off_the_bus_is_unhealthy_and_comes_back(library):
    told = tell(library, {"GPUS": 3}, {"LOST": 1}, {"LOST": -1}, {"GPUS": 2}, {"GPUS": 3})

    assert [cards(one)["GPU-00000001"]["reason"] for one in told] == ["", "CardGone", "", "", ""]
    assert [cards(one)["GPU-00000002"]["reason"] for one in told] == ["", "", "", "CardGone", ""]
    assert all(len(cards(one)) == 3 for one in told)


def test_a_reading_that_fails_is_no_verdict(library):
    told = tell(library, {"GPUS": 2}, {"UNREADABLE": 0}, {"NOCOUNT": 1}, {"NOCOUNT": 0, "UNREADABLE": -1})

    assert cards(told[1]) == cards(told[0]) == cards(told[3])
    assert "unavailable" in told[2]


def test_a_card_that_was_never_read_is_not_invented(library):
    (told,) = tell(library, {"GPUS": 2, "UNREADABLE": 0})

    assert list(cards(told)) == ["GPU-00000001"]


def test_a_critical_error_makes_a_card_unhealthy_and_a_programs_does_not(library):
    critical = tell(library, {"GPUS": 2}, {"XID": "1:48"}, {})
    programs = tell(library, {"GPUS": 2}, {"XID": "1:31"}, {})

    assert [cards(one)["GPU-00000001"]["message"] for one in critical] == ["", "xid 48", "xid 48"]
    assert not any(status["unhealthy"] for one in programs for status in cards(one).values())


def test_a_card_in_partition_mode_is_not_offered_whole(library):
    (told,) = tell(library, {"GPUS": 2, "MIG": 1})

    assert [status["reason"] for status in cards(told).values()] == ["", "PartitionMode"]
