import asyncio
from pathlib import Path

import pytest

from services.discovery.drivers.cgroup import limits
from services.discovery.drivers.host import LinuxHost
from services.discovery.drivers.pci import place_of


def files(root: Path, contents: dict[str, str]) -> Path:
    for name, text in contents.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


@pytest.fixture
def root(tmp_path):
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc" / "machine-id").write_text("abc123\n")
    return files(
        tmp_path,
        {
            "proc/meminfo": "MemTotal:       16384 kB\nMemFree: 1 kB\n",
            "proc/sys/kernel/random/boot_id": "boot-1\n",
            "proc/cpuinfo": "processor: 0\nvendor_id\t: GenuineIntel\n"
            "model name\t: Intel(R) Xeon(R) Platinum 8259CL CPU @ 2.50GHz\n",
        },
    )


def read(root: Path):
    return asyncio.run(LinuxHost(root=root).read())


def test_the_host_tells_who_it_is(root):
    facts = read(root)

    assert (facts.info.machine_id, facts.info.boot_id) == ("abc123", "boot-1")
    assert (facts.info.cpu_vendor, facts.info.cpu_model) == ("GenuineIntel", "Intel Xeon Platinum 8259CL")
    assert facts.memory_bytes == 16384 * 1024
    assert facts.labels["kubernetes.io/os"] == "linux"
    assert [address.type for address in facts.addresses] == ["Hostname"]


def test_the_least_of_all_control_groups_holds(root):
    files(root, {"proc/self/cgroup": "0::/a.slice/b.scope\n"})
    base = root / "sys/fs/cgroup"
    for level, cpu, memory in (
        ("", "max 100000", "max"),
        ("a.slice", "50000 100000", "8388608"),
        ("a.slice/b.scope", "max 100000", "max"),
    ):
        folder = base / level
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "cpu.max").write_text(cpu)
        (folder / "memory.max").write_text(memory)

    facts = read(root)

    assert (facts.cpu_milli, facts.memory_bytes) == (500, 8388608)


def test_version_1_control_groups_hold_too(root):
    files(
        root,
        {
            "proc/self/cgroup": "3:cpu,cpuacct:/docker/x\n5:memory:/docker/x\n",
            "sys/fs/cgroup/cpu/docker/x/cpu.cfs_quota_us": "25000",
            "sys/fs/cgroup/cpu/docker/x/cpu.cfs_period_us": "100000",
            "sys/fs/cgroup/memory/docker/x/memory.limit_in_bytes": "4194304",
            "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712",
        },
    )

    assert (limits(root).cpu_milli, limits(root).memory_bytes) == (250, 4194304)


@pytest.mark.parametrize("text", ["", "0::/\n", "garbage", "0::/../../x\n"])
def test_without_limits_the_whole_host_counts(root, text):
    files(root, {"proc/self/cgroup": text})

    assert (limits(root).cpu_milli, limits(root).memory_bytes) == (None, None)


def test_a_host_that_tells_nothing_still_has_an_identity(tmp_path):
    host = LinuxHost(root=tmp_path)

    assert len(host.machine_id()) == 32
    assert host.machine_id() == LinuxHost(root=tmp_path).machine_id()
    assert read(tmp_path).memory_bytes > 0


def test_a_card_knows_its_place(tmp_path):
    real = tmp_path / "sys/devices/pci0000:16/0000:16:02.0/0000:17:00.0/0000:18:01.0/0000:1e:00.0"
    real.mkdir(parents=True)
    (real / "numa_node").write_text("1\n")
    (real / "local_cpulist").write_text("0-13\n")
    (real / "class").write_text("0x030200\n")
    link = tmp_path / "sys/bus/pci/devices/0000:1e:00.0"
    link.parent.mkdir(parents=True)
    link.symlink_to(real)

    place = place_of("00000000:1E:00.0", tmp_path)

    assert (place.pci_bus_id, place.pci_class, place.numa_affinity, place.cpu_affinity) == (
        "0000:1e:00.0",
        "0302",
        "1",
        "0-13",
    )
    assert place.pci_switches == ["0000:18:01.0", "0000:17:00.0", "0000:16:02.0"]
    assert place.pci_root_id == "0000:16:02.0"


@pytest.mark.parametrize("bus", ["", "nonsense", "../../etc", "0000:1e:00.0"])
def test_an_unknown_place_stays_empty(tmp_path, bus):
    assert place_of(bus, tmp_path).numa_affinity == ""
