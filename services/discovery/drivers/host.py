"""This host: cores and memory it may really use (affinity, cgroups), processor, kernel, machine and boot ids.

Linux through /proc and /sys; elsewhere what Python tells. Root is a parameter, so that tests bring their own /proc.
Read next: cgroup.py.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import platform
import re
import socket
from pathlib import Path
from urllib.parse import urlsplit

from services.discovery.domain.identity import node_name
from services.discovery.drivers.cgroup import Limits, limits
from services.discovery.ports import HostFacts
from shared.errors import Unavailable
from shared.resources.core import NodeAddress, NodeInfo

ARCHITECTURES = {"x86_64": "amd64", "amd64": "amd64", "aarch64": "arm64", "arm64": "arm64"}
_ARM_VENDORS = {"0x41": "ARM", "0x46": "Fujitsu", "0x48": "HiSilicon", "0x4e": "NVIDIA", "0xc0": "Ampere"}
_FREQUENCY = re.compile(r"\s+(?:CPU\s*)?@\s.*$", re.IGNORECASE)
_TRADEMARKS = re.compile(r"\((?:R|TM|C)\)|[®™©]", re.IGNORECASE)


class LinuxHost:
    """The host this process runs on."""

    def __init__(self, *, nats_url: str = "", agent_version: str = "", root: Path = Path("/")) -> None:
        self._root = root
        self._nats_url = nats_url
        self._version = agent_version
        self._address: str | None = None

    async def read(self) -> HostFacts:
        """See port; a few small files of /proc, and once the way to the bus."""
        if self._address is None:
            self._address = await asyncio.to_thread(_address_towards, self._nats_url) if self._nats_url else ""
        try:
            return self._read()
        except OSError as error:
            raise Unavailable(f"the host's facts cannot be read: {error}") from error

    def _read(self) -> HostFacts:
        bounds = limits(self._root)
        system, machine = platform.system().lower(), platform.machine().lower()
        architecture = ARCHITECTURES.get(machine, machine)
        hostname = socket.gethostname()
        vendor, model = self._processor()
        return HostFacts(
            cpu_milli=_cpu_milli(bounds),
            memory_bytes=self._memory(bounds),
            info=NodeInfo(
                machine_id=self.machine_id(),
                boot_id=self.boot_id(),
                kernel_version=platform.release(),
                os_image=self._os_image() or platform.platform(),
                operating_system=system,
                architecture=architecture,
                cpu_vendor=vendor,
                cpu_model=model,
                agent_version=self._version,
            ),
            labels={
                "kubernetes.io/os": system,
                "kubernetes.io/arch": architecture,
                "kubernetes.io/hostname": node_name(hostname),
            },
            addresses=self._addresses(hostname),
        )

    def machine_id(self) -> str:
        """The installation's id; without one, a hash of what stays the same."""
        for name in ("etc/machine-id", "var/lib/dbus/machine-id"):
            found = _text(self._root / name).strip()
            if found:
                return found
        return hashlib.sha256(f"{socket.gethostname()}|{platform.machine()}".encode()).hexdigest()[:32]

    def boot_id(self) -> str:
        """The kernel's id of this boot; empty where there is none."""
        return _text(self._root / "proc/sys/kernel/random/boot_id").strip()

    def _processor(self) -> tuple[str, str]:
        fields: dict[str, str] = {}
        for line in _text(self._root / "proc/cpuinfo").splitlines():
            key, colon, value = line.partition(":")
            if colon:
                fields.setdefault(key.strip(), value.strip())
        vendor = fields.get("vendor_id") or _ARM_VENDORS.get(fields.get("CPU implementer", ""), "")
        model = fields.get("model name") or fields.get("Model") or platform.processor()
        return vendor, " ".join(_FREQUENCY.sub("", _TRADEMARKS.sub(" ", model)).split())

    def _memory(self, bounds: Limits) -> int:
        match = re.search(r"^MemTotal:\s+(\d+) kB", _text(self._root / "proc/meminfo"), re.MULTILINE | re.ASCII)
        total = int(match[1]) * 1024 if match else os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        return min(total, bounds.memory_bytes or total)

    def _os_image(self) -> str:
        match = re.search(r'^PRETTY_NAME="?([^"\n]*)', _text(self._root / "etc/os-release"), re.MULTILINE)
        return match[1] if match else ""

    def _addresses(self, hostname: str) -> tuple[NodeAddress, ...]:
        found = [NodeAddress(type="InternalIP", address=self._address)] if self._address else []
        return (*found, NodeAddress(type="Hostname", address=hostname))


def _cpu_milli(bounds: Limits) -> int:
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(usable * 1000, bounds.cpu_milli or usable * 1000)


def _address_towards(url: str) -> str:
    """The address that this host has on its way to the bus: where others reach it. Sends nothing, may ask a resolver."""
    first = urlsplit(url.split(",", maxsplit=1)[0].strip())
    if not first.hostname:
        return ""
    try:
        family, kind, _, _, target = socket.getaddrinfo(first.hostname, first.port or 4222, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, kind) as probe:
            probe.connect(target)
            return str(probe.getsockname()[0])
    except OSError:
        return ""


def _text(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""
