"""What is remembered of a pool: many small rows, and the keys that they stand under.

A row holds what its key does not say. Deadlines are instants of the served clock of the pool's
topic; a queued task's end is one of its *lane's* clock, which stands while the lane is paused.
Rows are arrays on the wire: they go to a compacted changelog with every step.
"""

from enum import StrEnum
from typing import Final

import msgspec

from schema.commands import HeldAttempt
from schema.ids import AccountId, IncarnationId, PoolId, RunnerId, TaskId
from schema.policy import Policy
from schema.words import Lane, Scene

LANES: Final = (Lane.P0, Lane.P1, Lane.P2)
"""In the order of service; the tuples of a pool's row have one place for each."""
LANE_NUMBER: Final[dict[Lane, int]] = {lane: number for number, lane in enumerate(LANES)}


class Stage(StrEnum):
    """How far an attempt has come, as its pool sees it."""

    PROPOSED = "proposed"
    """A slot is held; the task has been asked to start."""
    GRANTED = "granted"
    """The task has started and the runner has been told; it is to accept within its time."""
    ACCEPTED = "accepted"
    STORING = "storing"
    """The slot is free, the lease goes on until the task says that the attempt is over."""
    OVER = "over"
    """The task is done with it; the slot waits for its runner to free it."""
    LOST = "lost"
    """The pool has given it up and told the task; the slot waits for its runner to free it."""


HOLDS_SLOT: Final = frozenset(Stage) - {Stage.STORING}
LIVE: Final = frozenset({Stage.PROPOSED, Stage.GRANTED, Stage.ACCEPTED, Stage.STORING})
"""The attempt may still end well: if its runner goes, the task must be told that it is lost."""


class PoolRow(msgspec.Struct, frozen=True, kw_only=True, array_like=True, gc=False, tag="pool"):
    seq: int = 0
    passed: tuple[int, int, int] = (0, 0, 0)
    """For each lane, how often it was passed over while it waited (see `order`)."""
    stood_ms: tuple[int, int, int] = (0, 0, 0)
    """For each lane, how long its past pauses lasted together."""
    since_ms: tuple[int | None, int | None, int | None] = (None, None, None)
    """For each lane, since when it is paused; None: it is served."""

    def lane_ms(self, number: int, served_ms: int) -> int:
        """The lane's clock: the served clock less all the time that the lane was paused."""
        since_ms = self.since_ms[number]
        return (served_ms if since_ms is None else since_ms) - self.stood_ms[number]


class QueuedRow(msgspec.Struct, frozen=True, kw_only=True, array_like=True, gc=False, tag="queued"):
    token: int
    """The last token dispatched when the task came; the next attempt has this + 1."""
    lane: Lane
    arrival: int
    """The `seq` of the event that enqueued it: unique in its pool, and rising."""
    entered_ms: int
    expires_ms: int
    """In the lane's clock."""
    account_id: AccountId
    scene: Scene


class RunnerRow(msgspec.Struct, frozen=True, kw_only=True, array_like=True, gc=False, tag="runner"):
    incarnation_id: IncarnationId
    slots: int
    lease_until_ms: int
    fresh_until_ms: int
    """Later than this without a beat, it gets nothing new: it may be dead already."""
    beat: int = 0
    draining: bool = False
    missing: tuple[HeldAttempt, ...] = ()
    """What its last beat did not list although the pool counts on it (or waits for the slot)."""


class LeaseRow(msgspec.Struct, frozen=True, kw_only=True, array_like=True, gc=False, tag="lease"):
    runner_id: RunnerId
    incarnation_id: IncarnationId
    stage: Stage = Stage.PROPOSED
    accept_until_ms: int = 0
    """While GRANTED."""


class PolicyRow(msgspec.Struct, frozen=True, kw_only=True, array_like=True, gc=False, tag="policy"):
    """One for the partition; its `seq` counts the policies that the partition adopted."""

    seq: int
    policy: Policy


Row = PoolRow | QueuedRow | RunnerRow | LeaseRow | PolicyRow
ROW = Row
INITIAL: Final = PoolRow()

POLICY_KEY: Final = "policy"


def pool_key(pool_id: PoolId) -> str:
    return f"pool/{pool_id}"


def queued_key(pool_id: PoolId, task_id: TaskId) -> str:
    return f"queued/{pool_id}/{task_id}"


def runner_key(pool_id: PoolId, runner_id: RunnerId) -> str:
    return f"runner/{pool_id}/{runner_id}"


def lease_key(pool_id: PoolId, task_id: TaskId, token: int) -> str:
    return f"lease/{pool_id}/{task_id}/{token}"


def pool_of(key: str) -> PoolId:
    """The pool whose row this is (any key but the policy's)."""
    return PoolId(key.split("/", 2)[1])


def name_in(key: str) -> str:
    """The task of a queued row's key, or the runner of a runner's."""
    return key.split("/", 2)[2]


def waits_behind(key: str) -> str:
    """The key that is quarantined when the timer of this row raises; never a pool."""
    kind, _, name = key.split("/", 2)
    return f"{_HELD_AS[kind]}/{name}"


def behind(held: str, pool_id: PoolId) -> str | None:
    """The key of the row of a pool whose timer waits behind this quarantined key, if any."""
    kind, _, name = held.partition("/")
    row = _ROW_OF.get(kind)
    return None if row is None else f"{row}/{pool_id}/{name}"


_HELD_AS: Final = {"queued": "task", "runner": "runner", "lease": "slot"}
_ROW_OF: Final = {held: row for row, held in _HELD_AS.items()}


def attempt_in(key: str) -> HeldAttempt:
    """The attempt of a lease's key."""
    task_id, _, token = name_in(key).rpartition("/")
    return HeldAttempt(task_id=TaskId(task_id), token=int(token))
