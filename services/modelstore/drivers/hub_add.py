"""`python -m services.modelstore hub-add DIR --repo OWNER/NAME`: import a directory into the local hub.

Read next: hub_folder.py.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from services.modelstore.drivers.hub_folder import HubFolder
from shared.errors import InvalidArgument
from shared.units import format_bytes


def main(argv: list[str]) -> int:
    """Import, and say what was imported; 1 with a sentence when it cannot be."""
    parser = argparse.ArgumentParser(prog="hub-add", description="Import a directory as a repository of the local hub.")
    parser.add_argument("directory", type=Path)
    parser.add_argument("--repo", required=True, help="OWNER/NAME")
    parser.add_argument("--revision", default="main")
    parser.add_argument("--data-dir", type=Path, required=True)
    given = parser.parse_args(argv)
    try:
        commit, files = HubFolder(given.data_dir / "models" / "hub").add(given.directory, given.repo, given.revision)
    except (InvalidArgument, OSError) as error:
        sys.stderr.write(f"hub add: {error}\n")
        return 1
    total = format_bytes(sum(file.size for file in files))
    sys.stdout.write(f"{given.repo}@{given.revision}: {len(files)} files, {total}, commit {commit[:12]}\n")
    return 0
