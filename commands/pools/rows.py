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

WEIGHT_MS: Final = 10_000
"""One of weight puts a task as far back as this much less waiting."""


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
    picks: tuple[int, int, int] = (0, 0, 0)
    """For each lane, its picks since one went by age alone (see `flows`)."""
    mean_ms: int = 0
    """How long an attempt holds its slot: a moving mean of the last few dozen; 0: none ended."""
    bare_since_ms: int = 0
    """Since when it has no slot any more; 0: it has some, or never had any."""

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
    weight: int = 0
    model: str = ""
    start_by_ms: int | None = None
    """The latest start with which the caller's deadline is met."""
    moved: bool = False
    """It came from elsewhere: it is not moved again."""
    asked: bool = False
    """It has been asked to wait elsewhere; until it does it waits here."""
    preemptions: int = 0
    lower_spec: bool = False
    """It could be made with less and is not yet."""

    @property
    def rank_ms(self) -> int:
        """Its place: priority = weight - wait / 10 s, as a key that does not change."""
        return self.entered_ms + self.weight * WEIGHT_MS if self.weight else self.entered_ms


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
    spot: bool = False
    """Its card may be taken away at any time."""
    taken: bool = False
    """It is being taken away."""
    taken_until_ms: int = 0
    """Then the pool waits no longer for what runs there; 0: the notice did not say how long."""


class LeaseRow(msgspec.Struct, frozen=True, kw_only=True, array_like=True, gc=False, tag="lease"):
    runner_id: RunnerId
    incarnation_id: IncarnationId
    stage: Stage = Stage.PROPOSED
    accept_until_ms: int = 0
    """While GRANTED."""
    lane: Lane | None = None
    """None, as in rows from before there were any of the fields below: it is left alone."""
    account_id: AccountId | None = None
    scene: Scene | None = None
    model: str = ""
    preemptions: int = 0
    """How often its task was preempted before this attempt."""
    proposed_ms: int = 0
    """Since when it has the slot."""
    accepted_ms: int = 0
    """Since when its runner works on it."""
    unsaved_since_ms: int = 0
    """What it did since then is in no checkpoint."""
    yield_until_ms: int = 0
    """It is asked to give its slot up and is lost then; 0: it is not."""
    for_task: TaskId | None = None
    """Who gets the slot when it is freed: it was preempted for that task."""
    hold_until_ms: int = 0
    """Later than this the slot is anybody's."""
    probe: int = 0
    """Let through a half-open breaker, of this opening; 0: no probe."""
    charged: int = 0
    """What its account was charged for it at the proposal (see `shares`)."""

    @property
    def yields(self) -> bool:
        """Whether it is asked to give its slot up, and has not yet."""
        return self.yield_until_ms > 0 and self.stage is Stage.ACCEPTED


class ShareRow(msgspec.Struct, frozen=True, kw_only=True, array_like=True, gc=False, tag="share"):
    """Card time that an account has had of one lane of a pool, halved with each half-life."""

    epoch: int
    value: int
    """In units that double with each epoch (see `shares`)."""
    touched_ms: int


class BreakerState(StrEnum):
    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half_open"


class BreakerRow(
    msgspec.Struct, frozen=True, kw_only=True, array_like=True, gc=False, tag="breaker"
):
    """How the attempts of a scene end on a pool's cards, and whether any may start."""

    state: BreakerState = BreakerState.CLOSED
    until_ms: int = 0
    """While OPEN: then it is half open."""
    openings: int = 0
    """How often it opened; a probe carries this number."""
    good: int = 0
    """While HALF_OPEN: probes that ended well."""
    counts: tuple[tuple[int, int, int], ...] = ()
    """While CLOSED, by part of the window: its number, attempts that count, failed ones of them."""


class WaitsRow(msgspec.Struct, frozen=True, kw_only=True, array_like=True, gc=False, tag="waits"):
    """The load of a pool in the last seconds, for scaling; by part of a span, newest last."""

    waits: tuple[tuple[int, tuple[tuple[int, int], ...]], ...] = ()
    """Number of the part; of the tasks that started in it, class of their wait and how many."""
    peaks: tuple[tuple[int, int], ...] = ()
    """Number of the part; the most slots that were in demand in it."""


class ScaleRow(msgspec.Struct, frozen=True, kw_only=True, array_like=True, gc=False, tag="scale"):
    cards: int
    """How many the pool wants."""
    changed_ms: int
    first_ms: int = 0
    """When it last wanted one after it had wanted none."""


class PolicyRow(msgspec.Struct, frozen=True, kw_only=True, array_like=True, gc=False, tag="policy"):
    """One for the partition; its `seq` counts the policies that the partition adopted."""

    seq: int
    policy: Policy


Row = (
    PoolRow
    | QueuedRow
    | RunnerRow
    | LeaseRow
    | ShareRow
    | BreakerRow
    | WaitsRow
    | ScaleRow
    | PolicyRow
)
ROW = Row
INITIAL: Final = PoolRow()

POLICY_KEY: Final = "policy"
BREAKER: Final = "breaker/"


def pool_key(pool_id: PoolId) -> str:
    return f"pool/{pool_id}"


def queued_key(pool_id: PoolId, task_id: TaskId) -> str:
    return f"queued/{pool_id}/{task_id}"


def runner_key(pool_id: PoolId, runner_id: RunnerId) -> str:
    return f"runner/{pool_id}/{runner_id}"


def lease_key(pool_id: PoolId, task_id: TaskId, token: int) -> str:
    return f"lease/{pool_id}/{task_id}/{token}"


def breaker_key(pool_id: PoolId, scene: Scene) -> str:
    return f"{BREAKER}{pool_id}/{scene}"


def waits_key(pool_id: PoolId) -> str:
    return f"waits/{pool_id}"


def scale_key(pool_id: PoolId) -> str:
    return f"scale/{pool_id}"


def share_key(pool_id: PoolId, lane: Lane, account_id: AccountId) -> str:
    return f"share/{pool_id}/{lane}/{account_id}"


def pool_of(key: str) -> PoolId:
    """The pool whose row this is (any key but the policy's)."""
    return PoolId(key.split("/", 2)[1])


def name_in(key: str) -> str:
    """The task of a queued row's key, the runner of a runner's, the scene of a breaker's."""
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


_HELD_AS: Final = {"queued": "task", "runner": "runner", "lease": "slot", "breaker": "breaker"}
_ROW_OF: Final = {held: row for row, held in _HELD_AS.items()}


def attempt_in(key: str) -> HeldAttempt:
    """The attempt of a lease's key."""
    task_id, _, token = name_in(key).rpartition("/")
    return HeldAttempt(task_id=TaskId(task_id), token=int(token))
