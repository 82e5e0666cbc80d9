"""What a runner may tell is bounded by its lease, and not by when it hears of the lease's end."""

import time

import pytest
from prometheus_client import CollectorRegistry

from gpu_runners.lease import clock
from gpu_runners.metrics import Metrics
from gpu_runners.runner import Incarnation, LeaseGoneError, Runner
from schema.commands import FreeSlot
from schema.ids import CommandId, TaskId
from schema.settings import Kafka
from schema.settings import Runner as RunnerSettings
from schema.wires.log import LogUnavailableError, LogWriter
from tests.gpu_runners.test_attempts import Store


def incarnation() -> Incarnation:
    """Of a runner whose log was never reached: what it may tell fails as `LogUnavailableError`."""
    settings, kafka = RunnerSettings(), Kafka(brokers="127.0.0.1:1")
    runner = Runner(
        settings,
        kafka,
        writer=LogWriter(kafka),
        store=Store(),
        metrics=Metrics(CollectorRegistry(), 1),
    )
    return Incarnation(runner, clock())


def free_slot(one: Incarnation) -> FreeSlot:
    pool_id, runner_id, incarnation_id = one.who
    return FreeSlot(
        command_id=CommandId("free"),
        pool_id=pool_id,
        runner_id=runner_id,
        incarnation_id=incarnation_id,
        task_id=TaskId("0123456789abcdefghjkmnpqrs000007"),
        token=1,
    )


async def test_once_the_lease_is_over_nothing_is_even_offered_to_the_log(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It wakes up with an end to tell, and nobody has looked at the lease yet."""
    one = incarnation()
    offered: list[str] = []

    async def append(*_: object) -> None:
        offered.append("it was offered")
        raise LogUnavailableError("away")

    monkeypatch.setattr(LogWriter, "append", append)
    one.lease.next_beat(clock() - 10)
    assert one.lease.answered(0, 9)
    with pytest.raises(LeaseGoneError):
        await one.tell(free_slot(one))
    assert offered == []
    with pytest.raises(LeaseGoneError):  # never answered: it may offer, but does not insist
        await incarnation().tell(free_slot(one))
    assert offered


def test_the_clock_of_a_lease_goes_on_while_the_machine_sleeps() -> None:
    assert clock() >= time.monotonic() - 1  # since the boot, with what it slept
