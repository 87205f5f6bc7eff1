"""`gpubus get`, `apply`, `delete`: the server's tables, server-side apply, one document at a time.

Must not validate: the server does, and says it better. Read next: gpubus/explain.py (`describe`, `why`).
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from gpubus.kinds import ServedKind, named, of_document, served
from gpubus.refusal import Refusal
from gpubus.rest import Api, connect
from gpubus.terminal import table

_TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"
_APPLY = "application/apply-patch+yaml"
MANAGER = "gpubus"


def get(words: tuple[str, str], namespace: str, output: str, *, watch: bool, data_dir: str) -> None:
    """Print kinds or one object; `words` are KIND[,KIND] or KIND/NAME, and NAME; an empty namespace is all of them.

    Raises:
        Refusal: no such kind or object.
    """
    if output not in {"", "wide", "json", "yaml", "name"}:
        raise Refusal(f"-o {output!r} is not one of wide, json, yaml, name.")
    api = connect(data_dir)
    kinds, name = targets(api, *words)
    if watch:
        _watch(api, kinds[0], namespace, name, output)
        return
    shown = False
    for kind in kinds:
        shown = _show(api, kind, namespace, name, output, title=len(kinds) > 1) or shown
    if not shown and output in {"", "wide"}:
        print(
            f"No {kinds[0].plural if len(kinds) == 1 else 'resources'} found{f' in {namespace}' if namespace else ''}.",
            file=sys.stderr,
        )


def targets(api: Api, word: str, name: str) -> tuple[list[ServedKind], str]:
    """The kinds and the object that `KIND NAME`, `KIND/NAME` or `KIND,KIND` mean."""
    if "/" in word and not name:
        word, _, name = word.partition("/")
    known = served(api)
    return [kind for part in word.split(",") for kind in named(known, part)], name


def _show(api: Api, kind: ServedKind, namespace: str, name: str, output: str, *, title: bool) -> bool:
    accept = _TABLE if output in {"", "wide"} else "application/json"
    _, body = api.call("GET", kind.path(namespace, name), accept=accept)
    if output == "json":
        print(json.dumps(body, indent=4))
    elif output == "yaml":
        print(yaml_text(body), end="")
    elif output == "name":
        for item in body.get("items", [body]):
            print(f"{kind.label}/{item['metadata']['name']}")
    else:
        return _print_table(body, kind, wide=output == "wide", spaces=not namespace and kind.namespaced, title=title)
    return True


def yaml_text(body: Any) -> str:
    """YAML in the order of the server's fields."""
    import yaml

    text: str = yaml.safe_dump(body, sort_keys=False, allow_unicode=True)
    return text


def _print_table(body: dict[str, Any], kind: ServedKind, *, wide: bool, spaces: bool, title: bool) -> bool:
    rows = [_cells(row, spaces=spaces) for row in body.get("rows", ())]
    if not rows:
        return False
    columns = [*([{"name": "Namespace"}] if spaces else []), *body.get("columnDefinitions", ())]
    keep = [number for number, column in enumerate(columns) if wide or not column.get("priority")]
    if title:
        rows = [[*row[: int(spaces)], f"{kind.label}/{row[int(spaces)]}", *row[int(spaces) + 1 :]] for row in rows]
    head = [str(columns[number]["name"]).upper() for number in keep]
    print(table(head, [[row[number] for number in keep] for row in rows]) + ("\n" if title else ""))
    return True


def _cells(row: dict[str, Any], *, spaces: bool) -> list[str]:
    front = [str(row.get("object", {}).get("metadata", {}).get("namespace", ""))] if spaces else []
    return front + ["" if cell is None else str(cell) for cell in row.get("cells", ())]


def _watch(api: Api, kind: ServedKind, namespace: str, name: str, output: str) -> None:
    """Print what is there, then every change, as it comes."""
    plain = output in {"json", "yaml"}
    accept = "application/json" if plain else _TABLE
    select = {"fieldSelector": f"metadata.name={name}"} if name else {}
    _, listed = api.call("GET", kind.path(namespace), query=select or None, accept=accept)
    screen = _Screen(wide=output == "wide", spaces=not namespace and kind.namespaced)
    if plain:
        for item in listed.get("items", ()):
            _print_plain(item, output)
    else:
        screen.begin(listed)
    since = {"watch": "true", "resourceVersion": str(listed.get("metadata", {}).get("resourceVersion", ""))}
    for line in api.lines(kind.path(namespace), query=since | select, accept=accept):
        change = json.loads(line)
        if change.get("type") == "ERROR":
            raise Refusal(
                f"The watch ended: {change.get('object', {}).get('message', 'no reason given')}; start it again."
            )
        if change.get("type") == "BOOKMARK":
            continue
        if plain:
            _print_plain(change.get("object", {}), output)
        else:
            screen.show(change.get("object", {}))


def _print_plain(body: dict[str, Any], output: str) -> None:
    print(json.dumps(body) if output == "json" else f"{yaml_text(body)}---", flush=True)


class _Screen:
    """A table that grows: the first rows settle the columns' widths."""

    def __init__(self, *, wide: bool, spaces: bool) -> None:
        self._wide = wide
        self._spaces = spaces
        self._keep: list[int] = []
        self._widths: list[int] = []

    def begin(self, body: dict[str, Any]) -> None:
        """The head and the rows that are there."""
        columns = [*([{"name": "Namespace"}] if self._spaces else []), *body.get("columnDefinitions", ())]
        self._keep = [number for number, column in enumerate(columns) if self._wide or not column.get("priority")]
        head = [str(column["name"]).upper() for column in columns]
        rows = [head, *(_cells(row, spaces=self._spaces) for row in body.get("rows", ()))]
        self._widths = [
            max(10, *(len(row[number]) for row in rows if number < len(row))) for number in range(len(head))
        ]
        for row in rows:
            self._print(row)

    def show(self, body: dict[str, Any]) -> None:
        """What a change brings."""
        for row in body.get("rows", ()):
            self._print(_cells(row, spaces=self._spaces))

    def _print(self, cells: list[str]) -> None:
        print(
            "   ".join(
                cells[number].ljust(self._widths[number]) for number in self._keep if number < len(cells)
            ).rstrip(),
            flush=True,
        )


def documents(sources: list[str]) -> Iterator[tuple[str, dict[str, Any]]]:
    """(where, body) of every document of every source; `-` is standard input, a folder its *.yaml, *.yml and *.json.

    Raises:
        Refusal: a file is missing or not strict YAML; nothing of it is used.
    """
    from shared.errors import GpubusError
    from shared.manifest_text import load_documents

    for source in sources:
        for path in _files(source):
            try:
                text = sys.stdin.buffer.read() if path == "-" else Path(path).read_bytes()
                found = load_documents(text)
            except OSError as error:
                raise Refusal(f"{path} cannot be read: {error.strerror}.") from error
            except GpubusError as error:
                raise Refusal(f"{path}: {error.message}") from error
            for document in found:
                yield f"{path}:{document.line}", document.body


def _files(source: str) -> list[str]:
    folder = Path(source)
    if source == "-" or not folder.is_dir():
        return [source]
    return [str(path) for path in sorted(folder.iterdir()) if path.suffix in {".yaml", ".yml", ".json"}]


def apply(sources: list[str], namespace: str, *, dry_run: bool, data_dir: str) -> int:
    """Server-side apply every document, each reported on its own; 1 when any was refused.

    Raises:
        Refusal: a source cannot be read.
    """
    found = list(documents(sources))
    api = connect(data_dir)
    kinds = served(api)
    failed = 0
    for place, body in found:
        try:
            print(apply_one(api, kinds, body, namespace, dry_run=dry_run), flush=True)
        except Refusal as refusal:
            failed = 1
            print(f"{place}: {refusal.sentence}", file=sys.stderr, flush=True)
    if not found:
        raise Refusal(f"{', '.join(sources)}: there is no document in it.")
    return failed


def apply_one(api: Api, kinds: list[ServedKind], body: dict[str, Any], namespace: str, *, dry_run: bool) -> str:
    """Server-side apply one document; what was done, for a person.

    Raises:
        Refusal: the server's.
    """
    kind, space, name = placed(kinds, body, namespace)
    query = {"fieldManager": MANAGER, "force": "true", "fieldValidation": "Strict"} | (
        {"dryRun": "All"} if dry_run else {}
    )
    status, _ = api.call("PATCH", kind.path(space, name), query=query, body=body, content=_APPLY)
    done = "created" if status == 201 else "applied"
    return f"{kind.label}/{name} {done}{' (dry run)' if dry_run else ''}"


def placed(kinds: list[ServedKind], body: dict[str, Any], namespace: str) -> tuple[ServedKind, str, str]:
    """Kind, namespace and name of a document; its own namespace must not contradict an explicit one.

    Raises:
        Refusal: unknown kind, no name, or two namespaces.
    """
    kind = of_document(kinds, body)
    metadata = body.get("metadata")
    metadata = metadata if isinstance(metadata, dict) else {}
    name, own = metadata.get("name"), metadata.get("namespace")
    if not isinstance(name, str) or not name:
        raise Refusal(f"{kind.kind}: metadata.name is missing")
    if own and namespace and own != namespace and kind.namespaced:
        raise Refusal(f"{kind.label}/{name} is for namespace {own}, but -n says {namespace}")
    return kind, str(own or namespace or "default") if kind.namespaced else "", name


def delete(words: tuple[str, ...], sources: list[str], namespace: str, data_dir: str) -> int:
    """Delete KIND NAME..., KIND/NAME, or what the files name; 1 when any was not there.

    Raises:
        Refusal: nothing was named.
    """
    api = connect(data_dir)
    failed = 0
    for kind, space, name in _doomed(api, words, sources, namespace):
        status, answer = api.call("DELETE", kind.path(space, name), body={}, fine=(404,))
        if status == 404:
            failed = 1
            said = answer.get("message") if isinstance(answer, dict) else ""
            print(said or f"{kind.label}/{name} not found", file=sys.stderr)
        else:
            print(f"{kind.label}/{name} deleted", flush=True)
    return failed


def _doomed(
    api: Api, words: tuple[str, ...], sources: list[str], namespace: str
) -> Iterator[tuple[ServedKind, str, str]]:
    if sources:
        kinds = served(api)
        # Last first: what was applied later may use what was applied before.
        for _, body in reversed(list(documents(sources))):
            yield placed(kinds, body, namespace)
        return
    if not words:
        raise Refusal("Say what to delete: KIND NAME, KIND/NAME, or -f FILE.")
    pairs = (
        [word.partition("/")[::2] for word in words] if "/" in words[0] else [(words[0], name) for name in words[1:]]
    )
    if not pairs:
        raise Refusal(f"Say which {words[0]} to delete.")
    for word, name in pairs:
        (kind, *_), _ = targets(api, word, name)
        yield kind, namespace or "default" if kind.namespaced else "", name
