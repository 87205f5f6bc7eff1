"""A refused commit leaves no trace: each thing that phase 2 does is made impossible in turn."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from shared.errors import FailedPrecondition, GpubusError, PermissionDenied, Raced, ResourceExhausted, Unavailable
from shared.store import keys
from shared.store.client import Store
from shared.store.documents import ANY, Assign, Commit, Counter, Delete, InboxMark, Put, Require
from tests.integration.store.bodies import body, fact, new
from tests.support.keyspace import client, dump
from tests.support.servers import RedisServer

NODE, OTHER = keys.ledger("n1"), keys.ledger("n2")


@pytest.fixture
def server() -> Iterator[RedisServer]:
    """Its own: these tests change settings and users."""
    server = RedisServer()
    server.start()
    yield server
    server.close()


async def prepared(store: Store) -> Commit:
    """A commit that does everything a commit can do, on a store where it would succeed."""
    done = await store.commit(
        Commit(puts=[new("old"), new("gone")], counters=[Counter(NODE, "cpu", 5)], facts=[fact("old")])
    )
    await store.commit(Commit(assigns=[Assign(OTHER, "epoch", "1")], requires=[Require.equals(OTHER, "epoch", None)]))
    return Commit(
        puts=[new("fresh"), Put("Workload", "default", "old", body("u"), done.revisions[0])],
        deletes=[Delete("Workload", "default", "gone", done.revisions[1])],
        counters=[Counter(NODE, "cpu", 1)],
        assigns=[Assign(NODE, "epoch", store.epoch), Assign(OTHER, "epoch", None)],
        facts=[fact("fresh")],
        mark=InboxMark("handler", "m-1", {"a": 1}),
    )


async def written_keys(store: Store, server: RedisServer) -> list[str]:
    """What the prepared commit touches, found by doing it."""
    commit = await prepared(store)
    before = dump(server)
    await store.commit(commit)
    after = dump(server)
    changed = {key for key in before.keys() | after.keys() if before.get(key) != after.get(key)}
    return sorted(key.decode() for key in changed)


async def test_the_prepared_commit_touches_every_kind_of_key(server: RedisServer, connect) -> None:
    store = await connect(server)

    touched = await written_keys(store, server)

    starts = {key.removeprefix(keys.PREFIX).split(":")[0] for key in touched}
    assert starts == {"doc", "index", "ledger", "log", "meta", "outbox", "outbox-account", "inbox", "recent"}


async def test_a_wrong_type_at_any_key_changes_nothing(server: RedisServer, connect) -> None:
    touched = await written_keys(await connect(server), server)

    for position in range(len(touched)):
        server.flush()
        store = await connect(server)
        commit = await prepared(store)
        key = (await written_of(store, server, touched))[position]
        with client(server) as plain:
            plain.delete(key)
            plain.rpush(key, "a list where none belongs")
        before = dump(server)

        with pytest.raises(GpubusError) as refused:
            await store.commit(commit)

        assert dump(server) == before, key
        assert isinstance(refused.value, FailedPrecondition), (key, refused.value)
        assert refused.value.fields["key"] == key


async def written_of(store: Store, server: RedisServer, example: list[str]) -> list[str]:
    """The example's keys under this store's names (the slots of each process and the inbox bucket differ)."""
    bucket = await store.time_us() // 300_000_000
    names = []
    for key in example:
        if key.startswith(keys.recent("", "").removesuffix(":")):
            names.append(keys.recent(store.service, store._boot))
        elif key.startswith(keys.inbox_prefix(store.service, "handler")):
            names.append(f"{keys.inbox_prefix(store.service, 'handler')}{bucket}")
        else:
            names.append(key)
    return names


@pytest.mark.parametrize("key", [keys.LOG, keys.outbox("scheduler")])
async def test_a_later_entry_in_a_stream_changes_nothing(server: RedisServer, connect, key: str) -> None:
    store = await connect(server)
    commit = await prepared(store)
    with client(server) as plain:
        plain.xadd(key, {"a": "b"}, id="8999999999999999-0")
    before = dump(server)

    with pytest.raises(FailedPrecondition):
        await store.commit(commit)

    assert dump(server) == before


@pytest.mark.parametrize("command", ["hset", "hdel", "del", "zadd", "zrem", "xadd", "xtrim", "expire"])
async def test_a_missing_right_to_any_command_changes_nothing(server: RedisServer, connect, command: str) -> None:
    commit = await prepared(await connect(server))
    url = server.url_for("limited", "secret")
    with client(server) as plain:
        plain.execute_command("ACL", "SETUSER", "limited", "reset", "on", ">secret", "~*", "+@all")
        limited = await connect(server, url=url)
        plain.execute_command("ACL", "SETUSER", "limited", f"-{command}")
    before = dump(server)

    with pytest.raises(PermissionDenied) as refused:
        await limited.commit(commit)

    assert dump(server) == before
    assert refused.value.fields["command"].lower() == command


async def test_full_memory_stops_ordinary_commits_and_lets_releases_pass(server: RedisServer, connect) -> None:
    store = await connect(server)
    commit = await prepared(store)
    with client(server) as plain:
        plain.config_set("maxmemory", "1mb")
        before = dump(server)

        with pytest.raises(ResourceExhausted):
            await store.commit(commit)
        assert dump(server) == before
        freed = await store.commit(
            Commit(deletes=[Delete("Workload", "default", "gone")], facts=[fact("gone")], release=True)
        )
        assert len(freed.revisions) == 1

        plain.config_set("maxmemory", "0")
    await store.commit(commit_without_gone(commit))


def commit_without_gone(commit: Commit) -> Commit:
    return Commit(puts=commit.puts, counters=commit.counters, facts=commit.facts, mark=commit.mark)


async def test_too_few_replicas_change_nothing(server: RedisServer, connect) -> None:
    store = await connect(server)
    commit = await prepared(store)
    with client(server) as plain:
        plain.config_set("min-replicas-to-write", "1")
    before = dump(server)

    with pytest.raises(Unavailable):
        await store.commit(commit)

    assert dump(server) == before


@pytest.mark.parametrize(
    "spoil", ["revision", "exists", "missing", "bound", "equals", "requires", "deadline", "epoch", "outbox", "twice"]
)
async def test_a_broken_expectation_changes_nothing(server: RedisServer, connect, spoil: str) -> None:
    store = await connect(server, outbox_limit=3000)
    good = await prepared(store)
    spoiled = {
        "revision": Commit(puts=[*good.puts, Put("Workload", "default", "gone", body("u"), 1)], facts=good.facts),
        "exists": Commit(puts=[*good.puts, new("gone")], facts=good.facts),
        "missing": Commit(puts=good.puts, deletes=[Delete("Workload", "default", "none", ANY)], facts=good.facts),
        "bound": Commit(puts=good.puts, counters=[Counter(NODE, "cpu", 1), Counter(NODE, "cpu", -7)]),
        "equals": Commit(puts=good.puts, requires=[Require.equals(NODE, "cpu", "6")]),
        "requires": Commit(puts=good.puts, requires=[Require.exists("Node", "", "none")]),
        "deadline": Commit(puts=good.puts, mark=good.mark, deadline_us=1),
        "epoch": Commit(puts=good.puts, mark=good.mark, epoch="0-other"),
        "outbox": Commit(puts=good.puts, facts=[fact("x")] * 20),
        "twice": Commit(puts=good.puts, deletes=[Delete("Workload", "default", "old", ANY)]),
    }
    before = dump(server)

    with pytest.raises(GpubusError):
        await store.commit(spoiled[spoil])

    assert dump(server) == before
    assert not (await store.commit(good)).duplicate


async def test_two_hundred_writers_of_one_document_lose_cleanly(server: RedisServer, connect) -> None:
    import asyncio

    store, other = await connect(server), await connect(server, instance="two")
    done = await store.commit(Commit(puts=[new("hot")]))

    async def attempt(number: int) -> bool:
        writer = store if number % 2 else other
        put = Put("Workload", "default", "hot", body("u", number=number), done.revisions[0])
        try:
            await writer.commit(Commit(puts=[put], counters=[Counter(NODE, "won", 1)]))
        except Raced:
            return False
        return True

    won = await asyncio.gather(*(attempt(number) for number in range(200)))

    assert sum(won) == 1
    assert await store.read_hash(NODE) == {"won": "1"}
