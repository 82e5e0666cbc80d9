"""Pool commands in, pool events out: the single writer of every pool.

The rows and indexes of the pools of a partition are one `PoolState` in memory, recovered from the
table. A command changes it at once; what it changed is copied into the step, and undone if the
command turns out to be poison.
"""

from collections import Counter
from collections.abc import Callable
from functools import partial

from commands import pools
from commands.decider import Decision, TimerDue
from processors.clock import now_of
from processors.engine import Record, Step
from processors.outbox import Outbox
from processors.poison import guarded, release
from processors.quotas import tick_id
from processors.tables import Tables
from schema.codec import POOL_COMMANDS
from schema.commands import (
    AcceptAttempt,
    BeatRunner,
    DequeueTask,
    DrainRunner,
    EndAttempt,
    EnqueueTask,
    FreeSlot,
    GrantAttempt,
    PauseLane,
    PoolCommand,
    PublishPolicy,
    RefuseAttempt,
    RegisterRunner,
    ReleaseKey,
    ResetBreaker,
    ResumeLane,
)
from schema.events import PolicyAdopted, PoolEvent, SlotPreempted
from schema.ids import PoolId
from schema.topics import POOL_PARTITIONS, Topic, pool_partition


class _Recovered:
    """Fills the pool states at recovery; live changes are in them already."""

    def __init__(self) -> None:
        self.states: dict[int, pools.PoolState] = {}

    def on_put(self, partition: int, key: bytes, old: pools.Row | None, new: pools.Row) -> None:
        del old
        self.states[partition].load(key.decode(), new)

    def on_delete(self, partition: int, key: bytes, old: pools.Row) -> None:
        del old
        self.states[partition].forget(key.decode())

    def reset(self, partition: int) -> None:
        self.states[partition] = pools.PoolState()


class Pools:
    def __init__(self, tables: Tables, outbox: Outbox, partitions: int) -> None:
        self._table = tables.pools
        self._partitions = partitions
        self._outbox = outbox
        self._recovered = _Recovered()
        self._at_work: dict[int, Record] = {}
        """By partition, the last record that may have changed its pools."""
        self.preemptions: Counter[PoolId] = Counter()
        """Since this process started, for metrics."""
        self._table.listen(self._recovered)

    def handle(self, step: Step, record: Record) -> None:
        """One command."""
        state = self._begin(step)
        command = POOL_COMMANDS.decode(record.value or b"")
        if isinstance(command, ReleaseKey):
            release(step, self._outbox, record, command, self.handle)
            return
        decision = pools.handle(state, command, now_of(step, Topic.POOL_COMMANDS))
        self._write(step, state, decision, getattr(command, "reply_to", None))

    def tick(self, step: Step, limit: int) -> bool:
        """Accept times, leases and TTLs that are due, then free slots; whether more are."""
        state = self._begin(step)
        now = now_of(step, Topic.POOL_COMMANDS)
        state.hold(pools.rows_behind(state, step.failed()))
        for _ in range(limit):
            key = state.due(now.served_ms)
            if key is None:
                break
            timer = TimerDue(tick_id(step, key.encode()), key)
            held = len(step.failures)
            self._guarded(step, pools.waits_behind(key), partial(pools.fire, state, timer, now))
            if len(step.failures) > held:
                state.hold(pools.rows_behind(state, step.failed()))
        here = [
            PoolId(pool_id)
            for pool_id in POOL_PARTITIONS
            if pool_partition(pool_id, self._partitions) == step.partition
        ]
        settled = partial(pools.settle, state, tick_id(step, b"pools"), now, here)
        self._guarded(step, None, settled)
        return state.has_more(now.served_ms)

    def _guarded(
        self, step: Step, key: str | None, work: Callable[[], Decision[PoolEvent]]
    ) -> None:
        """One timer: what it changes in the pools stays, or is undone with what it wrote."""
        state = self._begin(step)
        guarded(
            step,
            self._outbox,
            key,
            lambda: self._write(step, state, work(), None),
            undo=state.rollback,
        )

    def undo(self, step: Step) -> None:
        """This step's record was poison: as if it had never been; not what stands before it."""
        if self._at_work.get(step.partition) is step.cause:
            self._recovered.states[step.partition].rollback()

    def states(self) -> list[pools.PoolState]:
        """The pools of every partition of this process, to be read for metrics."""
        return list(self._recovered.states.values())

    def _begin(self, step: Step) -> pools.PoolState:
        """The state for a new step; what the last one changed stays."""
        self._at_work[step.partition] = step.cause
        state = self._recovered.states[step.partition]
        state.take_changes()
        return state

    def _write(
        self,
        step: Step,
        state: pools.PoolState,
        decision: Decision[PoolEvent],
        reply_to: int | None,
    ) -> None:
        policy_key = f"policy/{step.partition}"
        for event in decision.events:
            key = policy_key if isinstance(event, PolicyAdopted) else event.pool_id
            self._outbox.event(step, Topic.POOL_EVENTS, key, event)
            if isinstance(event, SlotPreempted):
                self.preemptions[event.pool_id] += 1
        self._outbox.write(
            step, Topic.POOL_EVENTS, policy_key, decision._replace(events=()), reply_to
        )
        for row_key, row in state.changed.items():
            if row is None:
                step.delete(self._table, row_key.encode())
            else:
                step.put(self._table, row_key.encode(), row)


def quarantine_key(command: PoolCommand) -> str | None:
    """A slot, a runner or a task waits behind its poison command; never a whole pool."""
    match command:
        case PublishPolicy() | ReleaseKey() | PauseLane() | ResumeLane() | ResetBreaker():
            return None
        case RegisterRunner() | BeatRunner() | DrainRunner():
            return f"runner/{command.runner_id}"
        case EnqueueTask() | DequeueTask():
            return f"task/{command.task_id}"
        case GrantAttempt() | RefuseAttempt() | EndAttempt() | AcceptAttempt() | FreeSlot():
            return f"slot/{command.task_id}/{command.token}"
