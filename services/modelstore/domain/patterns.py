"""Which files of a repository an artifact keeps: allow and ignore patterns as the hub's own client reads them.

Must not know where files come from. Read next: services/modelstore/domain/revision.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase


def keeps(path: str, allow: Sequence[str], ignore: Sequence[str]) -> bool:
    """Whether a path stays: it matches some allow pattern (none given: all) and no ignore pattern.

    Patterns are case-sensitive, `*` and `?` cross `/`, and a trailing `/` means everything below that folder.
    """
    return (not allow or _any(path, allow)) and not _any(path, ignore)


def _any(path: str, patterns: Sequence[str]) -> bool:
    return any(fnmatchcase(path, pattern + "*" if pattern.endswith("/") else pattern) for pattern in patterns)
