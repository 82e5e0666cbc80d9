"""Every kind of message finds its topic, its partition and its key, and names its cause."""

from typing import Any, get_args

import msgspec
import pytest

from commands.decider import Decision
from processors.engine import Record, Routes, Sent, Step
from processors.engine.clock import Clock
from processors.engine.rows import Rows
from processors.outbox import Outbox
from processors.rules import OUTPUTS
from schema import commands as c
from schema import replies as r
from schema.codec import CODECS, encode
from schema.events import TaskQueued
from schema.message import CAUSE_HEADER
from schema.routes import Routed, route, route_inbox
from schema.topics import Topic
from tests.schema.samples import sample

PARTITIONS = 5
CAUSE = Record(Topic.TASK_COMMANDS, 3, 41, 1_000, b"key", b"value")
Sends = dict[tuple[str, int], list[Sent]]


def kinds(union: Any) -> list[type[Any]]:  # noqa: ANN401 - a union of types
    return list(get_args(union))


@pytest.fixture
def step() -> Step:
    routes = Routes({str(topic): PARTITIONS for topic in OUTPUTS})
    return Step(Rows(3, ()), Clock(), routes, CAUSE)


def sent(step: Step) -> Sends:
    """What the step would write."""
    sends: Sends = {}
    step.accept({}, sends)
    return sends


def the_one(step: Step) -> tuple[str, int, Sent]:
    ((topic, partition), (one,)) = next(iter(sent(step).items()))
    return topic, partition, one


@pytest.mark.parametrize("kind", kinds(Routed), ids=lambda kind: kind.__name__)
def test_an_order_goes_where_its_key_is_decided(step: Step, kind: type[c.Command]) -> None:
    order = sample(kind)
    Outbox(PARTITIONS).order(step, order)
    topic, partition, one = the_one(step)
    wanted = route(order, PARTITIONS)
    assert (topic, partition) == (wanted.topic, wanted.partition)
    assert one.key == wanted.key.encode()
    assert CODECS[Topic(topic)].decode(one.value) == order
    assert one.headers == ((CAUSE_HEADER, b"task-commands/3/41"),)


@pytest.mark.parametrize("kind", kinds(r.RunnerMessage), ids=lambda kind: kind.__name__)
def test_what_a_runner_is_told_goes_to_its_inbox(step: Step, kind: type[r.InboxMessage]) -> None:
    message = sample(kind)
    Outbox(PARTITIONS).order(step, message)
    topic, partition, one = the_one(step)
    wanted = route_inbox(message.runner_id, PARTITIONS)
    assert (topic, partition, one.key) == (wanted.topic, wanted.partition, wanted.key.encode())


def test_a_dead_letter_stays_on_its_partition_under_its_task(step: Step) -> None:
    letter = sample(r.DeadLetter)
    Outbox(PARTITIONS).order(step, letter)
    topic, partition, one = the_one(step)
    assert (topic, partition, one.key) == (Topic.DEAD_LETTERS, 3, letter.task_id.encode())
    assert CODECS[Topic.DEAD_LETTERS].decode(one.value) == letter


def test_a_letter_without_a_place_gets_that_of_its_cause(step: Step) -> None:
    letter = msgspec.structs.replace(sample(r.DeadLetter), partition=-1, offset=-1)
    Outbox(PARTITIONS).order(step, letter)
    _, _, one = the_one(step)
    read = CODECS[Topic.DEAD_LETTERS].decode(one.value)
    assert (read.topic, read.partition, read.offset) == (CAUSE.topic, 3, 41)


def test_all_of_a_decision_is_written_and_each_record_names_its_cause(step: Step) -> None:
    decision: Decision[Any] = Decision(
        events=(sample(TaskQueued),),
        orders=(sample(c.EnqueueTask),),
        reply=sample(r.Accepted),
        refusal=sample(r.CommandRefused),
    )
    Outbox(PARTITIONS).write(step, Topic.TASK_EVENTS, "task", decision, reply_to=7)
    sends = sent(step)
    assert {topic for topic, _ in sends} == {
        Topic.TASK_EVENTS,
        Topic.POOL_COMMANDS,
        Topic.REPLIES,
        Topic.REFUSALS,
    }
    assert (Topic.TASK_EVENTS, 3) in sends  # facts stay where they were decided
    assert (Topic.REFUSALS, 3) in sends
    assert (Topic.REPLIES, 7 % PARTITIONS) in sends
    causes = {one.headers for written in sends.values() for one in written}
    assert causes == {((CAUSE_HEADER, b"task-commands/3/41"),)}


def test_nobody_is_answered_who_did_not_ask(step: Step) -> None:
    decision: Decision[Any] = Decision(reply=sample(r.Accepted))
    Outbox(PARTITIONS).write(step, Topic.TASK_EVENTS, "task", decision, reply_to=None)
    assert sent(step) == {}


def test_the_bytes_of_a_record_are_those_of_the_contract(step: Step) -> None:
    order = sample(c.FreeSlot)
    Outbox(PARTITIONS).order(step, order)
    assert the_one(step)[2].value == encode(order)
