"""What `make docs` writes is what lies in the tree."""

from __future__ import annotations

from pathlib import Path

from shared.bus.docs import accounts, write

ROOT = Path(__file__).parents[2]
STALE = "is stale: run `make docs` and commit what it writes"


def test_the_catalogue_pages_are_current(tmp_path: Path):
    for path in write(tmp_path):
        name = path.relative_to(tmp_path)
        assert (ROOT / "docs" / name).read_text() == path.read_text(), f"docs/{name} {STALE}"


def test_the_permissions_for_external_servers_are_current():
    assert (ROOT / "deploy/nats/accounts.conf").read_text() == accounts(), f"deploy/nats/accounts.conf {STALE}"
