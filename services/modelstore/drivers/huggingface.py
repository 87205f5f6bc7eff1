"""A hub that speaks Hugging Face's read API, through `huggingface-hub` in a bounded thread.

The library is imported when the first repository is resolved: an idle controller does not carry it.
Read next: drivers/hub_server.py, which speaks the same API.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from itertools import islice
from typing import Any
from urllib.parse import quote, urlsplit

from services.modelstore.domain.hub import is_commit
from services.modelstore.domain.reasons import ResolveReason
from services.modelstore.domain.revision import Listing
from services.modelstore.ports import SourceError
from shared.manifest import ManifestFile

_AT_ONCE = 4
"""Calls of one endpoint that wait for it; a hub that hangs holds up nobody else."""
_REPORTED = 200
"""Characters of a hub's own words that are shown."""
_MOST_FILES = 100_000
"""Files of one commit that are read; what is kept of them is bounded by the size of a manifest."""


class HuggingFaceSource:
    """One endpoint."""

    def __init__(self, endpoint: str, *, timeout: float, told: str | None = None) -> None:
        """`told` is what the artifact's status says about the hub; the endpoint unless given."""
        self._endpoint = endpoint.rstrip("/")
        self._timeout = timeout
        self._told = self._endpoint if told is None else told
        self._threads = ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="modelstore-hub")

    async def list_commit(self, repository: str, revision: str, token: str) -> Listing:
        """Ask the hub which commit a revision means now, and for all files of that commit."""
        ask = asyncio.get_running_loop().run_in_executor
        return await ask(self._threads, self._list, repository, revision, token)

    def _list(self, repository: str, revision: str, token: str) -> Listing:
        import httpx2
        from huggingface_hub import HfApi
        from huggingface_hub.errors import HfHubHTTPError

        _keep_loopback_direct()
        api = HfApi(endpoint=self._endpoint, token=token or False)
        try:
            commit = str(api.model_info(repository, revision=revision, timeout=self._timeout).sha)
            if not is_commit(commit):
                raise self._nonsense(f"the commit of {repository} is told as {commit[:_REPORTED]!r}")
            files = tuple(_file(entry) for entry in islice(self._tree(repository, commit, token), _MOST_FILES + 1))
        except HfHubHTTPError as error:
            raise self._refusal(repository, revision, error) from None
        except (httpx2.HTTPError, httpx2.InvalidURL, OSError) as error:
            sentence = f"{self._endpoint} cannot be asked now: {type(error).__name__} {str(error)[:_REPORTED]}".strip()
            raise SourceError(ResolveReason.SOURCE_UNAVAILABLE, sentence) from None
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
            raise self._nonsense(f"{type(error).__name__} while reading {repository}") from None
        if len(files) > _MOST_FILES:
            sentence = f"commit {commit} has more than {_MOST_FILES} files"
            raise SourceError(ResolveReason.INVALID_MANIFEST, sentence)
        return Listing(commit, files, self._told)

    def _tree(self, repository: str, commit: str, token: str) -> Iterator[dict[str, Any]]:
        """All files, page by page.

        `HfApi.list_repo_tree` waits for ever for a hub that is silent and sleeps as long as one says; here the
        resolver's own schedule counts.
        """
        from huggingface_hub.utils import (  # type: ignore[attr-defined] # re-exported upstream without saying so
            build_hf_headers,
            get_session,
            hf_raise_for_status,
        )

        headers = build_hf_headers(token=token or False)
        first = url = f"{self._endpoint}/api/models/{repository}/tree/{quote(commit)}?recursive=true&expand=false"
        while url:
            if urlsplit(url)[:2] != urlsplit(first)[:2]:
                raise self._nonsense("the next page of its listing is at another host")
            reply = get_session().get(url, headers=headers, timeout=self._timeout)
            hf_raise_for_status(reply)
            entries = reply.json()
            if not entries:
                return
            yield from (entry for entry in entries if entry["type"] == "file")
            url = str(reply.links.get("next", {}).get("url", ""))

    def _nonsense(self, what: str) -> SourceError:
        sentence = f"{self._endpoint} does not answer like a model hub: {what}"
        return SourceError(ResolveReason.SOURCE_UNAVAILABLE, sentence)

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


@cache
def _keep_loopback_direct() -> None:
    """A proxy of this host's environment is for other hosts: the local hub is asked directly, once for the process."""
    import httpx2
    from huggingface_hub import set_client_factory

    def client() -> httpx2.Client:
        loopback = dict.fromkeys(("all://127.0.0.1", "all://localhost", "all://[::1]"))
        return httpx2.Client(follow_redirects=True, timeout=None, mounts=loopback)

    set_client_factory(client)


def _file(entry: dict[str, Any]) -> ManifestFile:
    lfs = entry.get("lfs")
    if lfs:
        return ManifestFile(str(entry["path"]), int(lfs["size"]), "sha256", str(lfs["oid"]))
    return ManifestFile(str(entry["path"]), int(entry["size"]), "gitsha1", str(entry["oid"]))
