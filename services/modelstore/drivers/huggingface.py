"""A hub that speaks Hugging Face's read API, through `huggingface-hub` in a bounded thread.

The library is imported when the first repository is resolved: an idle controller does not carry it.
Read next: drivers/hub_server.py, which speaks the same API.
"""

from __future__ import annotations

import asyncio
from typing import Any

from services.modelstore.domain.reasons import ResolveReason
from services.modelstore.domain.revision import Listing
from services.modelstore.ports import SourceError
from shared.manifest import ManifestFile

_AT_ONCE = 4
_REPORTED = 200
"""Characters of a hub's own words that are shown."""


class HuggingFaceSource:
    """One endpoint."""

    def __init__(self, endpoint: str, *, timeout: float, told: str | None = None) -> None:
        """`told` is what the artifact's status says about the hub; the endpoint unless given."""
        self._endpoint = endpoint.rstrip("/")
        self._timeout = timeout
        self._told = self._endpoint if told is None else told
        self._turns = asyncio.Semaphore(_AT_ONCE)

    async def list_commit(self, repository: str, revision: str, token: str) -> Listing:
        """Ask the hub which commit a revision means now, and for all files of that commit."""
        async with self._turns:
            return await asyncio.to_thread(self._list, repository, revision, token)

    def _list(self, repository: str, revision: str, token: str) -> Listing:
        import httpx2
        from huggingface_hub import HfApi
        from huggingface_hub.errors import HfHubHTTPError

        api = HfApi(endpoint=self._endpoint, token=token or False)
        try:
            info = api.model_info(repository, revision=revision, timeout=self._timeout)
            commit = str(info.sha)
            tree = api.list_repo_tree(repository, revision=commit, recursive=True)
            files = tuple(_file(entry) for entry in tree if hasattr(entry, "size"))
        except HfHubHTTPError as error:
            raise self._refusal(repository, revision, error) from None
        except (httpx2.HTTPError, OSError, ValueError) as error:
            sentence = f"{self._endpoint} cannot be asked now: {type(error).__name__} {str(error)[:_REPORTED]}".strip()
            raise SourceError(ResolveReason.SOURCE_UNAVAILABLE, sentence) from None
        return Listing(commit, files, self._told)

    def _refusal(self, repository: str, revision: str, error: Any) -> SourceError:
        from huggingface_hub.errors import GatedRepoError, RepositoryNotFoundError, RevisionNotFoundError

        status = getattr(getattr(error, "response", None), "status_code", 0)
        if isinstance(error, RevisionNotFoundError):
            sentence = f"{repository} has no branch, tag or commit {revision!r} at {self._endpoint}"
            return SourceError(ResolveReason.REVISION_NOT_FOUND, sentence)
        if isinstance(error, GatedRepoError | RepositoryNotFoundError) or status in {401, 403, 404}:
            sentence = (
                f"{repository} does not exist at {self._endpoint} or is not accessible; check the name, "
                "and name a Secret with a token in secretRef if it is private or gated"
            )
            return SourceError(ResolveReason.ACCESS_DENIED, sentence)
        return SourceError(ResolveReason.SOURCE_UNAVAILABLE, f"{self._endpoint} answered {status or 'badly'}")


def _file(entry: Any) -> ManifestFile:
    lfs = entry.lfs
    if lfs is not None:
        return ManifestFile(str(entry.path), int(lfs.size), "sha256", str(lfs.sha256))
    return ManifestFile(str(entry.path), int(entry.size), "gitsha1", str(entry.blob_id))
