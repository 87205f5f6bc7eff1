"""The migrator: declares everything from the catalogue, repeats without effect, removes what nobody handles any more."""

from __future__ import annotations

import pytest
from nats.js.api import ConsumerConfig, DiscardPolicy, RetentionPolicy
from nats.js.manager import JetStreamManager

from shared import subjects
from shared.bus.streams import declared_durables, declared_streams, migrate
from shared.errors import Unavailable
from tests.integration.bus.conftest import Connect
from tests.support.bus import forget_everything
from tests.support.servers import NatsServer, free_port


async def test_a_new_server_gets_everything_and_a_repeat_changes_nothing(nats_server: NatsServer):
    await forget_everything(nats_server)

    first, second = await migrate(nats_server.url), await migrate(nats_server.url)

    assert len(first.created) == len(declared_streams()) + len(declared_durables())
    assert (second.created, second.updated, second.removed, second.orphans) == ([], [], [], [])


async def test_commands_are_a_work_queue_that_refuses_when_full(server: NatsServer, connect: Connect):
    manager = JetStreamManager((await connect(server, "admin")).connection)

    config = (await manager.stream_info(subjects.STREAM_COMMANDS)).config

    assert config.retention == RetentionPolicy.WORK_QUEUE
    assert (config.max_age, config.duplicate_window, config.discard) == (600, 600, DiscardPolicy.NEW)


async def test_a_changed_durable_and_stream_are_put_right(server: NatsServer, connect: Connect):
    manager = JetStreamManager((await connect(server, "admin")).connection)
    stream = (await manager.stream_info("FACTS_SCHEDULER")).config
    stream.max_age = 60
    stream.duplicate_window = 60
    await manager.update_stream(stream)
    durable = (await manager.consumer_info("FACTS_SCHEDULER", "deployer-on-workload-admitted")).config
    durable.max_ack_pending = 3
    await manager.add_consumer("FACTS_SCHEDULER", durable)

    done = await migrate(server.url)

    assert done.updated == ["FACTS_SCHEDULER", "FACTS_SCHEDULER/deployer-on-workload-admitted"]
    info = await manager.consumer_info("FACTS_SCHEDULER", "deployer-on-workload-admitted")
    assert (info.config.max_ack_pending, info.config.max_deliver, info.config.ack_wait) == (1000, 8, 3.0)


async def test_our_own_orphans_go_and_foreign_ones_are_only_reported(server: NatsServer, connect: Connect):
    manager = JetStreamManager((await connect(server, "admin")).connection)
    for name in ("scheduler-on-something-old", "somebodys-tool"):
        config = ConsumerConfig(name=name, durable_name=name, filter_subject="gpubus.evt.workload.admitted.v1.>")
        await manager.add_consumer("FACTS_SCHEDULER", config)
    await manager.add_stream(name="FACTS_RETIRED", subjects=["retired.>"])

    done = await migrate(server.url)

    assert done.removed == ["FACTS_SCHEDULER/scheduler-on-something-old"]
    assert done.orphans == ["FACTS_SCHEDULER/somebodys-tool", "FACTS_RETIRED"]


async def test_no_server_is_unavailable():
    with pytest.raises(Unavailable):
        await migrate(f"nats://127.0.0.1:{free_port()}", connect_seconds=0.5)
