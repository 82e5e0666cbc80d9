"""Thousands that wait for a delay: worked on in pages, and memory is flat in them."""

import tracemalloc
from itertools import pairwise
from typing import Any

import msgspec

from processors.due import DueIndex
from processors.rules import TICK_TIMERS_MAX
from schema import commands as c
from schema import events as e
from schema.failures import FailureClass
from schema.ids import CommandId, IncarnationId, RunnerId, TaskId
from schema.policy import Policy
from schema.topics import Topic
from tests.processors.play import ANN, POLICY, POOL
from tests.support import task_words as w
from tests.support.flow import Flow

TASKS = 3 * TICK_TIMERS_MAX + 100


def names() -> list[TaskId]:
    return [TaskId(f"{number:026d}" + ANN[-6:]) for number in range(TASKS)]


def create(task: TaskId) -> c.CreateTask:
    made = w.create(task=task, reservation=f"submit-{task}")
    name = CommandId(f"create-{task}")
    return msgspec.structs.replace(made, command_id=name, pool_id=POOL)


def start_and_fail(flow: Flow, task: TaskId, token: int) -> None:
    """An attempt that fails at once; what the pool thinks of it does not matter here."""
    flow.append(
        c.StartAttempt(
            command_id=CommandId(f"start-{task}-{token}"),
            task_id=task,
            token=token,
            pool_id=POOL,
            runner_id=RunnerId("r"),
            incarnation_id=IncarnationId("r.1"),
            lease_seconds=30,
        )
    )
    flow.append(
        c.FailAttempt(
            command_id=CommandId(f"fail-{task}-{token}"),
            task_id=task,
            token=token,
            failure=FailureClass.NETWORK,
        )
    )


def delayed(policy: Policy = POLICY) -> Flow:
    flow = Flow(partitions=1)
    flow.publish(policy)
    for task in names():
        flow.append(create(task))
        start_and_fail(flow, task, 1)
    flow.settle()
    return flow


def queued_again(flow: Flow) -> list[TaskId]:
    """Tasks in the order in which they came out of their delay."""
    seen: set[TaskId] = set()
    found: list[TaskId] = []
    for event in flow.messages(Topic.TASK_EVENTS):
        if isinstance(event, e.TaskRequeued):
            seen.add(event.task_id)
        elif isinstance(event, e.TaskQueued) and event.task_id in seen:
            found.append(event.task_id)
    return found


def test_what_is_due_comes_in_pages_and_earliest_first() -> None:
    flow = delayed()
    delays = {
        event.task_id: event.delay_ms
        for event in flow.messages(Topic.TASK_EVENTS)
        if isinstance(event, e.TaskRequeued)
    }
    flow.now_ms += 60_000
    flow.tick()  # the clock of the partition stands still over the gap
    counts = [len(queued_again(flow))]
    while counts[-1] < TASKS:
        flow.tick()
        counts.append(len(queued_again(flow)))
    pages = [after - before for before, after in pairwise(counts)]
    assert max(pages) <= TICK_TIMERS_MAX
    assert len([page for page in pages if page]) >= TASKS // TICK_TIMERS_MAX
    order = queued_again(flow)
    assert sorted(order) == names()
    waits = [delays[task] for task in order]
    assert waits == sorted(waits)


def test_delays_that_come_and_go_leave_nothing_behind_in_memory() -> None:
    """What is remembered of a delay is its row and one entry of the index, however often."""
    flow = delayed()
    index = flow.rules.tasks._due  # pyright: ignore[reportPrivateUsage]
    while len(queued_again(flow)) < TASKS:
        flow.tick()
    before = _size(index)
    tracemalloc.start()
    for task in names():
        start_and_fail(flow, task, 2)
    flow.settle()
    while len(queued_again(flow)) < 2 * TASKS:
        flow.tick()
    of_index = [
        trace
        for trace in tracemalloc.take_snapshot().statistics("filename")
        if trace.traceback[0].filename.endswith("processors/due.py")
    ]
    tracemalloc.stop()
    assert _size(index) <= before
    assert sum(trace.size for trace in of_index) < TASKS * 400


def _size(index: DueIndex[Any]) -> int:
    """Entries of the heap: those that count, and those that were passed over."""
    return sum(map(len, index._heaps.values()))  # pyright: ignore[reportPrivateUsage]
