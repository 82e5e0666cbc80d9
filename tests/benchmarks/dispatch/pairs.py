"""From what a reader saw to figures: each freed slot, and the start of the task that got it."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from schema import events as e
from schema.codec import POOL_COMMANDS, POOL_EVENTS, TASK_EVENTS
from schema.commands import FreeSlot
from schema.message import CAUSE_HEADER
from schema.topics import Topic
from tests.benchmarks.dispatch.reader import POOL, Arrival

_FREE = b'"pool.free.v1"'
_Attempt = tuple[str, int]


class Times(NamedTuple):
    """Milliseconds."""

    p50: float
    p99: float
    most: float


class Figures(NamedTuple):
    whole: Times
    """From `FreeSlot` appended to `TaskStarted` at the reader."""
    pool: Times
    """Of that, to `SlotFreed` at the reader."""
    task: Times
    """And from there."""
    counted: int
    unfollowed: int
    """Freed slots of the window that no task of the same decision got."""
    dispatches_per_s: float
    waiting_min: int
    """The fewest tasks that waited in the pool at any time of the window."""

    def summary(self) -> dict[str, Any]:
        """For the line of JSON."""
        return {
            "p50_ms": self.whole.p50,
            "p99_ms": self.whole.p99,
            "max_ms": self.whole.most,
            "dispatches_per_s": self.dispatches_per_s,
            "counted": self.counted,
            "unfollowed": self.unfollowed,
            "waiting_min": self.waiting_min,
            "freed_to_event_p99_ms": self.pool.p99,
            "event_to_started_p50_ms": self.task.p50,
            "event_to_started_p99_ms": self.task.p99,
        }


class _Seen:
    """What stands in the log, by what it is found by."""

    def __init__(self) -> None:
        self.appended: dict[bytes, float] = {}
        """When the broker appended a `FreeSlot`, by the cause that follow-ups name."""
        self.freed: dict[bytes, float] = {}
        """When the `SlotFreed` that it led to arrived."""
        self.given: dict[bytes, _Attempt] = {}
        """The attempt that got a slot in the same decision."""
        self.started: dict[_Attempt, float] = {}
        self.waiting: list[tuple[float, int]] = [(0.0, 0)]
        """When it changed, and how many waited from then on."""

    def take(self, arrival: Arrival) -> None:
        record, value = arrival.record, arrival.record.value or b""
        match arrival.place.topic:
            case Topic.POOL_COMMANDS:
                if _FREE in value and isinstance(POOL_COMMANDS.decode(value), FreeSlot):
                    place = f"{arrival.place.topic}/{arrival.place.partition}/{record.offset}"
                    self.appended[place.encode()] = float(record.timestamp)
            case Topic.POOL_EVENTS:
                cause = dict(record.headers).get(CAUSE_HEADER, b"")
                self._pool(POOL_EVENTS.decode(value), cause, arrival.at_ms)
            case _:
                event = TASK_EVENTS.decode(value)
                if isinstance(event, e.TaskStarted):
                    self.started[event.task_id, event.token] = arrival.at_ms

    def _pool(self, event: e.PoolEvent, cause: bytes, at_ms: float) -> None:
        if isinstance(event, e.PolicyAdopted) or event.pool_id != POOL:
            return
        match event:
            case e.SlotFreed():
                self.freed[cause] = at_ms
            case e.SlotProposed():
                self.given.setdefault(cause, (event.task_id, event.token))
                self._wait(at_ms, -1)
            case e.TaskEnqueued():
                self._wait(at_ms, 1)
            case e.TaskDequeued():
                self._wait(at_ms, -1)
            case _:
                pass

    def _wait(self, at_ms: float, more: int) -> None:
        self.waiting.append((at_ms, self.waiting[-1][1] + more))


def figures_of(arrivals: Sequence[Arrival], began_ms: float, ended_ms: float) -> Figures:
    """Of the slots whose `FreeSlot` was appended in the window."""
    seen = _Seen()
    for arrival in arrivals:
        seen.take(arrival)
    whole: list[float] = []
    pool: list[float] = []
    task: list[float] = []
    unfollowed = 0
    for cause, freed_ms in seen.freed.items():
        appended_ms = seen.appended.get(cause)
        if appended_ms is None or not began_ms <= appended_ms < ended_ms:
            continue
        attempt = seen.given.get(cause)
        started_ms = None if attempt is None else seen.started.get(attempt)
        if started_ms is None:
            unfollowed += 1
            continue
        whole.append(started_ms - appended_ms)
        pool.append(freed_ms - appended_ms)
        task.append(started_ms - freed_ms)
    in_window = sum(began_ms <= at_ms < ended_ms for at_ms in seen.started.values())
    return Figures(
        whole=_times(whole),
        pool=_times(pool),
        task=_times(task),
        counted=len(whole),
        unfollowed=unfollowed,
        dispatches_per_s=round(in_window / ((ended_ms - began_ms) / 1000), 1),
        waiting_min=_fewest(seen.waiting, began_ms, ended_ms),
    )


def _fewest(waiting: Sequence[tuple[float, int]], began_ms: float, ended_ms: float) -> int:
    """Of what was so at the beginning of the window and of every change in it."""
    before = [number for at_ms, number in waiting if at_ms < began_ms][-1:]
    return min(before + [number for at_ms, number in waiting if began_ms <= at_ms < ended_ms])


def _times(values: list[float]) -> Times:
    ordered = sorted(values) or [float("nan")]

    def at(share: float) -> float:
        return round(ordered[min(len(ordered) - 1, int(len(ordered) * share))], 1)

    return Times(at(0.5), at(0.99), at(1.0))
