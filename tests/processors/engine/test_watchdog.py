"""The watchdog: what it lets pass, and what ends the process."""

import asyncio
import time

import pytest
from aiokafka.errors import KafkaTimeoutError
from aiokafka.structs import RecordMetadata, TopicPartition
from prometheus_client import CollectorRegistry

from processors.engine import Batch, Engine, Record, Routes, Settings, Writer
from processors.engine.engine import Place, Seen
from processors.engine.errors import TopologyError
from processors.engine.metrics import Metrics
from processors.engine.order import Limits, Waiting
from processors.engine.owner import Owner, Shared
from processors.engine.ticker import Ticker
from processors.engine.watchdog import Watchdog
from tests.processors.engine.toy import Topics, ToyRules

TOPICS = Topics("toy")
WORK: Place = (TOPICS.work, 0)


class Broker:
    """A producer whose broker answers when it is told to."""

    def __init__(self) -> None:
        self.unanswered: list[asyncio.Future[RecordMetadata]] = []

    async def send(self, *_: object, **__: object) -> asyncio.Future[RecordMetadata]:
        self.unanswered.append(asyncio.get_running_loop().create_future())
        return self.unanswered[-1]

    def answer(self, offset: int) -> None:
        place = TopicPartition(*WORK)
        answered = RecordMetadata(*WORK, place, offset, 0, 1, 0)
        self.unanswered.pop().set_result(answered)

    def fail(self) -> None:
        self.unanswered.pop().set_exception(KafkaTimeoutError())


def new_engine(*, stuck: float = 0.01, ready: float = 60) -> Engine:
    rules = ToyRules(TOPICS)
    settings = Settings(
        broker="nowhere:1",
        app_id="toy",
        partitions=1,
        changelog=TOPICS.state,
        journal=TOPICS.journal,
        stuck_seconds_max=stuck,
        ready_seconds_max=ready,
        silent_seconds_max=0.01,
    )
    metrics = Metrics(CollectorRegistry())
    engine = Engine(
        settings,
        sources=TOPICS.sources,
        tables=rules.tables,
        outputs=TOPICS.outputs,
        rules=rules,
        metrics=metrics,
    )
    writer = Writer(
        0,
        partitions=1,
        sources=TOPICS.sources,
        tables=rules.tables,
        rules=rules,
        routes=Routes({}),
    )
    writer.positions = {source.topic: 5 for source in TOPICS.sources}
    waiting = Waiting(TOPICS.sources, Limits())
    engine.owners[0] = Owner(writer, None, waiting, Shared(settings, metrics))
    engine.ready = True
    return engine


async def verdict(engine: Engine, seen: dict[Place, Seen]) -> str | None:
    """What it says when it looks twice, longer apart than it allows."""
    dog = Watchdog(engine)
    dog.beat(seen)
    await asyncio.sleep(0.03)
    dog.beat(seen)
    return dog.reason


async def test_a_process_without_lag_may_stand_still() -> None:
    assert await verdict(new_engine(), {WORK: Seen(position=5, end=5, handed=5)}) is None


async def test_control_markers_at_the_end_are_no_lag() -> None:
    assert await verdict(new_engine(), {WORK: Seen(position=6, end=6, handed=5)}) is None


async def test_records_that_wait_in_kafka_and_never_come_are() -> None:
    reason = await verdict(new_engine(), {WORK: Seen(position=5, end=9, handed=5)})
    assert reason is not None
    assert "no progress" in reason


async def test_records_that_were_lost_on_their_way_inside_are_seen() -> None:
    reason = await verdict(new_engine(), {WORK: Seen(position=9, end=9, handed=9)})
    assert reason is not None
    assert "applied to 5, handed over to 9" in reason


async def test_commands_that_wait_at_an_owner_that_does_nothing_are_seen() -> None:
    engine = new_engine()
    record = Record(TOPICS.work, 0, 5, 0, b"k", b"{}")
    engine.owners[0].waiting.add(Batch(TOPICS.work, 0, [record], 5, 6))
    reason = await verdict(engine, {})
    assert reason is not None
    assert "commands wait" in reason


async def test_a_process_that_does_not_get_ready_is_ended() -> None:
    engine = new_engine(ready=0.01)
    engine.ready = False
    reason = await verdict(engine, {})
    assert reason is not None
    assert reason.startswith("not ready for")


async def test_an_assignment_without_some_of_the_sources_is_refused() -> None:
    engine = new_engine()
    with pytest.raises(TopologyError, match="another release is in the group"):
        await engine.assign([(TOPICS.work, 0), (TOPICS.notes, 0)])


async def test_who_stays_down_is_left_alone() -> None:
    engine = new_engine()
    engine.stay_down("the code is wrong")
    assert await verdict(engine, {WORK: Seen(position=5, end=9, handed=9)}) is None
    assert engine.health() == (False, "the code is wrong", (0,), 0)


async def test_an_idle_process_without_kafka_is_not_ready() -> None:
    engine, broker = new_engine(), Broker()
    owner = engine.owners[0]
    owner.ticker = Ticker(broker, owner.writer)
    assert engine.health().ready
    await owner.ticker.beat()
    await asyncio.sleep(0.03)  # longer than silence may last
    assert engine.health().reason.startswith("partition 0: no tick has come back for")
    broker.fail()
    await owner.ticker.beat()  # it was given up, and the next one waits: that is silence still
    assert not engine.health().ready
    broker.answer(owner.writer.positions[TOPICS.work])
    owner.writer.positions[TOPICS.work] += 1  # it was read
    await owner.ticker.beat()
    assert engine.health().ready


async def test_a_process_that_works_on_a_backlog_is_ready_though_its_tick_comes_late() -> None:
    engine, broker = new_engine(), Broker()
    owner = engine.owners[0]
    owner.ticker = Ticker(broker, owner.writer)
    await owner.ticker.beat()
    await asyncio.sleep(0.03)
    assert not engine.health().ready
    owner.moved_at = time.monotonic()
    assert engine.health().ready
