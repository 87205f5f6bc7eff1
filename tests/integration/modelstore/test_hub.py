"""The local hub as Hugging Face's own client and as plain HTTP sees it."""

from __future__ import annotations

import asyncio
import hashlib
import http.client
import json
import os
import socket
import subprocess
import sys
import threading
from dataclasses import dataclass
from pathlib import Path

import pytest
from huggingface_hub import HfApi, hf_hub_download, snapshot_download
from huggingface_hub.errors import EntryNotFoundError, RepositoryNotFoundError, RevisionNotFoundError

from services.modelstore.drivers.hub_folder import HubFolder
from services.modelstore.drivers.hub_server import bind, keep_hub, serve
from tests.integration.modelstore.conftest import content
from tests.support.servers import free_port
from tests.support.wait import eventually

WEIGHTS = content("weights", 3_000_000)
FILES = {
    "config.json": b'{"a": 1}',
    "sub/model.gguf": WEIGHTS,
    "a b/100% ü#?.txt": b"odd",
    "a%20b.txt": b"escaped",
    "e": b"",
}
SHA, GIT = hashlib.sha256(WEIGHTS).hexdigest(), hashlib.sha1(b'blob 8\0{"a": 1}').hexdigest()


@dataclass
class Hub:
    """A running hub with one repository."""

    url: str
    port: int
    folder: HubFolder
    source: Path
    commit: str

    def ask(self, path: str, method: str = "GET", **headers: str) -> tuple[int, dict[str, str], bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=20)
        connection.request(method, path, headers={name.replace("_", "-"): value for name, value in headers.items()})
        reply = connection.getresponse()
        body = reply.read()
        told = {name.lower(): value for name, value in reply.getheaders()}
        connection.close()
        return reply.status, told, body


@pytest.fixture
async def hub(tmp_path):
    source = tmp_path / "source"
    for path, data in FILES.items():
        (source / path).parent.mkdir(parents=True, exist_ok=True)
        (source / path).write_bytes(data)
    folder, listener = HubFolder(tmp_path / "hub"), bind("127.0.0.1", 0)
    port = listener.getsockname()[1]
    commit, _ = folder.add(source, "o/n")
    serving = asyncio.ensure_future(serve(folder, listener))
    hub = Hub(f"http://127.0.0.1:{port}", port, folder, source, commit)

    async def up():
        return not serving.done() and await asyncio.to_thread(_answers, port)

    await eventually(up, timeout=20)
    yield hub
    await _ended(serving)


async def _ended(serving):
    serving.cancel()
    await asyncio.gather(serving, return_exceptions=True)
    await asyncio.sleep(0.05)  # closing transports takes a turn of the loop


def _answers(port):
    try:
        socket.create_connection(("127.0.0.1", port), timeout=5).close()
    except OSError:
        return False
    return True


async def test_the_official_client_lists_and_downloads_everything(hub, tmp_path):
    api = HfApi(endpoint=hub.url, token=False)

    def use():
        info = api.model_info("o/n", revision="main", files_metadata=False)
        tree = {entry.path: entry for entry in api.list_repo_tree("o/n", revision=hub.commit, recursive=True)}
        kept = snapshot_download("o/n", endpoint=hub.url, cache_dir=tmp_path / "cache", token=False)
        one = hf_hub_download(
            "o/n", "sub/model.gguf", revision=hub.commit, endpoint=hub.url, cache_dir=tmp_path / "c2", token=False
        )
        return info, tree, kept, one

    info, tree, kept, one = await asyncio.to_thread(use)

    assert info.sha == hub.commit
    assert {sibling.rfilename for sibling in info.siblings} == set(FILES)
    assert (tree["sub/model.gguf"].lfs.sha256, tree["sub/model.gguf"].size) == (SHA, len(WEIGHTS))
    assert (tree["config.json"].blob_id, tree["config.json"].lfs) == (GIT, None)
    assert kept.endswith(hub.commit)
    assert {path: (Path(kept) / path).read_bytes() for path in FILES} == FILES
    assert Path(one).read_bytes() == WEIGHTS


async def test_hf_endpoint_is_all_that_a_script_needs(hub, tmp_path):
    script = "import huggingface_hub as h; print(h.snapshot_download('o/n', allow_patterns=['*.json']))"
    env = {**os.environ, "HF_ENDPOINT": hub.url, "HF_HOME": str(tmp_path / "home"), "HF_HUB_DISABLE_PROGRESS_BARS": "1"}

    done = await asyncio.to_thread(
        subprocess.run, [sys.executable, "-c", script], env=env, capture_output=True, text=True, check=False
    )

    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.strip().endswith(hub.commit)


async def test_the_official_client_understands_what_is_not_there(hub):
    api = HfApi(endpoint=hub.url, token=False)

    def refusals():
        found = []
        for call in (
            lambda: api.model_info("o/unknown"),
            lambda: api.model_info("o/n", revision="nope"),
            lambda: api.model_info("o/n", revision="0" * 40),
            lambda: api.model_info("o/n", revision="refs/pr/1"),
            lambda: hf_hub_download("o/n", "nope.bin", endpoint=hub.url, token=False),
        ):
            try:
                call()
            except Exception as error:
                found.append(type(error))
        return found

    found = await asyncio.to_thread(refusals)

    assert found[0] is RepositoryNotFoundError
    assert found[1:4] == [RevisionNotFoundError] * 3
    assert issubclass(found[4], EntryNotFoundError)


@pytest.mark.parametrize(
    ("path", "etag", "linked"),
    [("sub/model.gguf", f'"{SHA}"', True), ("config.json", f'"{GIT}"', False)],
)
async def test_head_tells_what_get_would_send(hub, path, etag, linked):
    status, told, body = await asyncio.to_thread(hub.ask, f"/o/n/resolve/main/{path}", "HEAD")
    _, got, full = await asyncio.to_thread(hub.ask, f"/o/n/resolve/{hub.commit}/{path}")

    assert (status, body, full) == (200, b"", FILES[path])
    assert told["etag"] == got["etag"] == etag
    assert told["content-length"] == got["content-length"] == str(len(FILES[path]))
    assert told["x-repo-commit"] == hub.commit
    assert (told.get("x-linked-etag"), told.get("x-linked-size")) == (
        (etag, str(len(FILES[path]))) if linked else (None, None)
    )


LENGTH = len(FILES["config.json"])


@pytest.mark.parametrize(
    ("asked", "status", "span"),
    [
        ("bytes=0-3", 206, (0, 3)),
        ("bytes=2-", 206, (2, LENGTH - 1)),
        ("bytes=-3", 206, (LENGTH - 3, LENGTH - 1)),
        ("bytes=-999", 206, (0, LENGTH - 1)),
        ("bytes=2-999", 206, (2, LENGTH - 1)),
        (f"bytes={LENGTH - 1}-", 206, (LENGTH - 1, LENGTH - 1)),
        (f"bytes={LENGTH}-", 416, None),
        ("bytes=999-", 416, None),
        ("bytes=-0", 416, None),
        ("bytes=5-2", 200, None),
        ("bytes=0-1,3-4", 200, None),
        ("bytes=", 200, None),
        ("bytes=-", 200, None),
        ("bytes=a-b", 200, None),
        ("lines=0-1", 200, None),
        (f"bytes={'9' * 5000}-", 200, None),
    ],
)
async def test_ranges(hub, asked, status, span):
    told, headers, body = await asyncio.to_thread(hub.ask, "/o/n/resolve/main/config.json", Range=asked)

    whole = FILES["config.json"]
    assert told == status
    if span:
        assert body == whole[span[0] : span[1] + 1]
        assert headers["content-range"] == f"bytes {span[0]}-{span[1]}/{LENGTH}"
    elif status == 416:
        assert headers["content-range"] == f"bytes */{LENGTH}"
    else:
        assert body == whole
        assert "content-range" not in headers


@pytest.mark.parametrize(("tag", "status"), [(f'"{GIT}"', 206), ('"other"', 200), (f'W/"{GIT}"', 200)])
async def test_a_range_is_of_the_version_that_was_begun(hub, tag, status):
    told, _, body = await asyncio.to_thread(hub.ask, "/o/n/resolve/main/config.json", Range="bytes=2-", If_Range=tag)

    assert (told, body) == (status, FILES["config.json"][2 if status == 206 else 0 :])


@pytest.mark.parametrize("asked", ["", "bytes=0-", "bytes=-5"])
async def test_an_empty_file_is_empty(hub, asked):
    status, headers, body = await asyncio.to_thread(
        hub.ask, "/o/n/resolve/main/e", **({"Range": asked} if asked else {})
    )

    assert status in {200, 416}
    assert body == b"" or "error" in json.loads(body)
    assert headers["content-length"] == str(len(body))


@pytest.mark.parametrize(
    "path",
    [
        "/o/n/resolve/main/../../../../../../etc/passwd",
        "/o/n/resolve/main/..%2f..%2f..%2fetc%2fpasswd",
        "/o/n/resolve/main/%2e%2e/%2e%2e/refs/main",
        "/o/n/resolve/main//etc/passwd",
        "/o/n/resolve/..%2frefs/main",
        "/o/n/resolve/../refs/main",
        "/o/..%2fn/resolve/main/config.json",
        "/../n/resolve/main/config.json",
        "/%2e%2e/n/resolve/main/config.json",
        "/o/n/resolve/main/config.json%00",
        "/o/n/resolve/main/config.json/",
        "/o/n/resolve/main/",
        "/o/n/resolve/.main.1/config.json",
        "/api/models/o%2f..%2fo/n",
        "/api/models/../hub",
        "/api/models/o/n/tree/../../x",
        "/o/n/raw/main/config.json",
        "/",
        "//",
        "/%ff%fe/n/resolve/main/x",
        "/o/n/resolve/main/%ff%fe",
    ],
)
@pytest.mark.parametrize("method", ["GET", "HEAD"])
async def test_paths_that_lead_elsewhere_lead_nowhere(hub, path, method):
    status, told, body = await asyncio.to_thread(hub.ask, path, method)

    assert status == 404
    assert told["x-error-code"]
    assert b"root:" not in body


@pytest.mark.parametrize(
    "path",
    [
        "/api/models/o/n/revision/x%0d%0aX-Evil:%201%0d%0a%0d%0ahello",
        "/api/models/o%0d%0aX-Evil:%201/n",
        "/o/n/resolve/main/x%0dX-Evil:%201",
        "/api/models/o/n/revision/ü%E2%80%A8",
    ],
)
async def test_an_answer_cannot_be_given_headers_by_its_request(hub, path):
    request = f"GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode()

    def ask():
        with socket.create_connection(("127.0.0.1", hub.port), timeout=20) as link:
            link.sendall(request)
            whole = b""
            while part := link.recv(65536):
                whole += part
        return whole

    whole = await asyncio.to_thread(ask)

    head = whole.partition(b"\r\n\r\n")[0]
    assert whole.count(b"HTTP/1.1 ") == 1
    assert not [line for line in head.replace(b"\r", b"\n").split(b"\n") if line.lower().startswith(b"x-evil")]


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS"])
async def test_nobody_writes(hub, method):
    status, _, _ = await asyncio.to_thread(hub.ask, "/o/n/resolve/main/config.json", method)

    assert status == 405


async def test_a_client_that_leaves_is_not_read_for(hub):
    """What is left of a large file is not read from disk for nobody."""
    reads = []
    hub.source.joinpath("huge.bin").write_bytes(bytes(64 << 20))
    commit, _ = hub.folder.add(hub.source, "o/huge")
    call = asyncio.to_thread

    async def counted(function, *words):
        if getattr(function, "__name__", "") == "read":
            reads.append(words)
        return await call(function, *words)

    link = await call(socket.create_connection, ("127.0.0.1", hub.port))
    from services.modelstore.drivers import hub_server

    hub_server.asyncio.to_thread, before = counted, hub_server.asyncio.to_thread
    try:
        await call(link.sendall, f"GET /o/huge/resolve/{commit}/huge.bin HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        await call(link.recv, 1000)
        link.close()
        await asyncio.sleep(0.5)
        seen = len(reads)
        await asyncio.sleep(0.3)
    finally:
        hub_server.asyncio.to_thread = before
    assert len(reads) == seen < 64


async def test_readers_see_whole_commits_while_others_are_imported(hub):
    stop, wrong = threading.Event(), []

    def read():
        while not stop.is_set():
            commit = json.loads(hub.ask("/api/models/o/n/revision/main")[2])["sha"]
            listed = json.loads(hub.ask(f"/api/models/o/n/tree/{commit}?recursive=true")[2])
            for entry in listed:
                if entry["path"] != "sub/model.gguf":
                    continue
                status, _, body = hub.ask(f"/o/n/resolve/{commit}/sub/model.gguf")
                if status != 200 or hashlib.sha256(body).hexdigest() != entry["lfs"]["oid"]:
                    wrong.append((status, len(body)))

    def write():
        for number in range(8):
            weights = hub.source / "sub" / "model.gguf"
            weights.unlink()
            weights.write_bytes(content(f"turn {number}", 2_000_000))
            hub.folder.add(hub.source, "o/n")

    reader = asyncio.ensure_future(asyncio.to_thread(read))
    await asyncio.to_thread(write)
    stop.set()
    await reader

    assert wrong == []
    status, _, body = await asyncio.to_thread(hub.ask, f"/o/n/resolve/{hub.commit}/sub/model.gguf")
    assert (status, body) == (200, WEIGHTS)


async def test_the_hub_is_taken_over_when_its_server_is_gone(tmp_path):
    HubFolder(tmp_path / "hub").add(_a_source(tmp_path), "o/n")
    port = free_port()
    first = asyncio.ensure_future(keep_hub(tmp_path / "hub", "127.0.0.1", port))
    await eventually(lambda: asyncio.to_thread(_answers, port), timeout=20)
    second = asyncio.ensure_future(keep_hub(tmp_path / "hub", "127.0.0.1", port))
    await asyncio.sleep(0.2)
    await _ended(first)

    await eventually(lambda: asyncio.to_thread(_answers, port), timeout=20)
    assert not second.done()
    await _ended(second)


def _a_source(tmp_path):
    source = tmp_path / "small"
    source.mkdir()
    (source / "x").write_text("x")
    return source
