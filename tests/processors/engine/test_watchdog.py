"""The watchdog: what it lets pass, and what ends the process."""

import asyncio

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
SILENT, STUCK, NOT_READY = 5, 20, 60


class Clock:
    """What the engine takes for `time` here: moved by hand."""

    def __init__(self) -> None:
        self.now = 1_000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """The clock of every part of the engine that is looked at here."""
    found = Clock()
    for name in ("engine", "owner", "ticker", "watchdog"):
        monkeypatch.setattr(f"processors.engine.{name}.time", found)
    return found


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


def new_engine() -> Engine:
    rules = ToyRules(TOPICS)
    settings = Settings(
        broker="nowhere:1",
        app_id="toy",
        partitions=1,
        changelog=TOPICS.state,
        journal=TOPICS.journal,
        stuck_seconds_max=STUCK,
        ready_seconds_max=NOT_READY,
        silent_seconds_max=SILENT,
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


def verdict(
    engine: Engine, seen: dict[Place, Seen], clock: Clock, limit: float = STUCK
) -> str | None:
    """What it says when it looks again later than `limit`; until then it says nothing."""
    dog = Watchdog(engine)
    dog.beat(seen)
    clock.now += limit
    dog.beat(seen)
    assert dog.reason is None
    clock.now += 1
    dog.beat(seen)
    return dog.reason


def test_a_process_without_lag_may_stand_still(clock: Clock) -> None:
    assert verdict(new_engine(), {WORK: Seen(position=5, end=5, handed=5)}, clock) is None


def test_control_markers_at_the_end_are_no_lag(clock: Clock) -> None:
    assert verdict(new_engine(), {WORK: Seen(position=6, end=6, handed=5)}, clock) is None


def test_records_that_wait_in_kafka_and_never_come_are(clock: Clock) -> None:
    reason = verdict(new_engine(), {WORK: Seen(position=5, end=9, handed=5)}, clock)
    assert reason is not None
    assert "no progress" in reason


def test_records_that_were_lost_on_their_way_inside_are_seen(clock: Clock) -> None:
    reason = verdict(new_engine(), {WORK: Seen(position=9, end=9, handed=9)}, clock)
    assert reason is not None
    assert "applied to 5, handed over to 9" in reason


def test_commands_that_wait_at_an_owner_that_does_nothing_are_seen(clock: Clock) -> None:
    engine = new_engine()
    record = Record(TOPICS.work, 0, 5, 0, b"k", b"{}")
    engine.owners[0].waiting.add(Batch(TOPICS.work, 0, [record], 5, 6))
    reason = verdict(engine, {}, clock)
    assert reason is not None
    assert "commands wait" in reason


def test_a_process_that_does_not_get_ready_is_ended(clock: Clock) -> None:
    engine = new_engine()
    engine.ready = False
    reason = verdict(engine, {}, clock, NOT_READY)
    assert reason is not None
    assert reason.startswith("not ready for")


async def test_an_assignment_without_some_of_the_sources_is_refused() -> None:
    engine = new_engine()
    with pytest.raises(TopologyError, match="another release is in the group"):
        await engine.assign([(TOPICS.work, 0), (TOPICS.notes, 0)])


def test_who_stays_down_is_left_alone(clock: Clock) -> None:
    engine = new_engine()
    engine.stay_down("the code is wrong")
    assert verdict(engine, {WORK: Seen(position=5, end=9, handed=9)}, clock) is None
    assert engine.health() == (False, "the code is wrong", (0,), 0)


async def test_an_idle_process_without_kafka_is_not_ready(clock: Clock) -> None:
    engine, broker = new_engine(), Broker()
    owner = engine.owners[0]
    owner.ticker = Ticker(broker, owner.writer)
    assert engine.health().ready
    await owner.ticker.beat()
    clock.now += SILENT
    assert engine.health().ready
    clock.now += 1
    assert engine.health().reason.startswith("partition 0: no tick has come back for")
    broker.fail()
    await owner.ticker.beat()  # it was given up, and the next one waits: that is silence still
    assert not engine.health().ready
    broker.answer(owner.writer.positions[TOPICS.work])
    owner.writer.positions[TOPICS.work] += 1  # it was read
    await owner.ticker.beat()
    assert engine.health().ready
    clock.now += SILENT
    assert engine.health().ready, "the silence begins anew"


async def test_a_process_that_works_on_a_backlog_is_ready_though_its_tick_comes_late(
    clock: Clock,
) -> None:
    engine, broker = new_engine(), Broker()
    owner = engine.owners[0]
    owner.ticker = Ticker(broker, owner.writer)
    await owner.ticker.beat()
    clock.now += SILENT + 1
    assert not engine.health().ready
    owner.moved_at = clock.now
    assert engine.health().ready
