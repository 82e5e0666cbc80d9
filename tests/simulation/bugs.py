"""Bugs on purpose: what the watch must find. Each is one thing that somebody could well write.

Nothing here touches a file: a bug is patched in for one simulation and taken out again.
"""

# A bug goes where it hurts, private or not.
# pyright: reportPrivateUsage=false

import sys
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from typing import Any, Final, NamedTuple

import msgspec
import pytest

from commands.decider import Decision
from commands.pools.rows import Stage
from commands.tasks import attempts, losing
from commands.tasks.verdicts import LOSSES
from processors.due import DueIndex
from processors.engine.clock import Clock
from processors.engine.writer import BOOK
from processors.pools import Pools
from schema import commands as c
from schema.codec import POOL_COMMANDS
from schema.replies import CommandRefused
from schema.words import LossCause
from tests.simulation.cluster import Cluster

Patch = pytest.MonkeyPatch
# Packages of deciders export functions under the names of their modules.
_pool_decide = sys.modules["commands.pools.decide"]
_pool_evolve = sys.modules["commands.pools.evolve"]
_quota_evolve = sys.modules["commands.quotas.evolve"]
_quota_reserve = sys.modules["commands.quotas.reserve"]
_task_evolving = sys.modules["commands.tasks.evolving"]


class Bug(NamedTuple):
    what: str
    plant: Callable[[Patch], None]


def _at_any_token(rule: Callable[..., Any]) -> Callable[..., Any]:
    """The rule, as if the token that tells were the current one."""

    def taken(state: Any, command: Any, asked: Any) -> Any:  # noqa: ANN401
        course = getattr(state, "course", None)
        if course is not None and command.token < course.token:
            course = msgspec.structs.replace(course, token=command.token)
            state = msgspec.structs.replace(state, course=course)
        return rule(state, command, asked)

    return taken


def _token_of_a_result(patch: Patch) -> None:
    patch.setattr(attempts, "finish", _at_any_token(attempts.finish))


def _token_of_a_failure(patch: Patch) -> None:
    patch.setattr(losing, "fail", _at_any_token(losing.fail))


def _release_forgotten(patch: Patch) -> None:
    failed = losing._failed

    def without_release(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
        return failed(*args, **kwargs)._replace(orders=())

    patch.setattr(losing, "_failed", without_release)


def _released_twice(patch: Patch) -> None:
    move = _quota_evolve._move

    def twice(books: Any, event: Any, *, reserved: int = 0, **more: Any) -> Any:  # noqa: ANN401
        if type(event).__name__ == "QuotaReleased" and books.user.reserved_micros >= -2 * reserved:
            reserved *= 2
        return move(books, event, reserved=reserved, **more)

    patch.setattr(_quota_evolve, "_move", twice)


def _limit_not_held(patch: Patch) -> None:
    exceeded = _quota_reserve._exceeded

    def forgetful(standing: Any, amount: int) -> Any:  # noqa: ANN401
        return exceeded(standing._replace(held_micros=0, contract_held_micros=0), amount)

    patch.setattr(_quota_reserve, "_exceeded", forgetful)


def _slot_leaked(patch: Patch) -> None:
    free = _pool_decide._free

    def leaks(draft: Any, command: c.FreeSlot) -> None:  # noqa: ANN401
        lease = draft.state.lease_of(command.pool_id, command.task_id, command.token)
        if lease is None or lease.stage is not Stage.OVER:
            free(draft, command)

    patch.setitem(_pool_decide.RULES, c.FreeSlot, leaks)


def _slot_given_away(patch: Patch) -> None:
    after = _pool_evolve._after

    def frees(lease: Any, event: Any) -> Any:  # noqa: ANN401
        stage = after(lease, event)
        return None if stage is Stage.LOST else stage

    patch.setattr(_pool_evolve, "_after", frees)


def _incarnation_not_checked(patch: Patch) -> None:
    def anybody(draft: Any, command: Any) -> Any:  # noqa: ANN401
        return draft.state.runner_of(command.pool_id, command.runner_id)

    patch.setattr(_pool_decide, "_current", anybody)


def _lease_not_renewed(patch: Patch) -> None:
    extended = _pool_evolve._extended

    def forgets(state: Any, pool: Any, event: Any, now: Any) -> Any:  # noqa: ANN401
        before = {
            key: row.lease_until_ms for key, row in state.rows.items() if key.startswith("runner/")
        }
        after = extended(state, pool, event, now)
        for key, until in before.items():
            row = state.runner(key)
            if row is not None:
                state.put(key, msgspec.structs.replace(row, lease_until_ms=until))
        return after

    patch.setitem(_pool_evolve.EVOLVE, _event("LeasesExtended"), forgets)


def _event(name: str) -> Any:  # noqa: ANN401
    return getattr(sys.modules["schema.events"], name)


def _stall_not_counted(patch: Patch) -> None:
    def tick(self: Clock, topic: str) -> None:
        self.last_tick[topic] = self.now

    patch.setattr(Clock, "tick", tick)


def _timers_lost_at_recovery(patch: Patch) -> None:
    on_put = DueIndex.on_put

    def deaf(self: Any, partition: int, key: bytes, old: Any, new: Any) -> None:  # noqa: ANN401
        if old is not None:
            on_put(self, partition, key, old, new)

    patch.setattr(DueIndex, "on_put", deaf)


def _tick_lost(patch: Patch) -> None:
    due = DueIndex.due

    def once(self: Any, partition: int, *asked: Any) -> Iterator[bytes]:  # noqa: ANN401
        for number, key in enumerate(due(self, partition, *asked)):
            if number:  # the second of a tick is taken off the list and never looked at
                self._deadlines[partition].pop(key, None)
            else:
                yield key

    patch.setattr(DueIndex, "due", once)


def _retry_not_counted(patch: Patch) -> None:
    requeued = _task_evolving._requeued

    def forgets(state: Any, event: Any, served_ms: int) -> Any:  # noqa: ANN401
        row = requeued(state, event, served_ms)
        course = msgspec.structs.replace(row.course, retries=0, losses=0)
        return msgspec.structs.replace(row, course=course)

    patch.setattr(_task_evolving, "_requeued", forgets)


def _made_again(patch: Patch) -> None:
    verdict = LOSSES[LossCause.BACKSTOP]
    patch.setitem(LOSSES, LossCause.BACKSTOP, verdict._replace(final_while_storing=False))


def _duplicate_not_answered(patch: Patch) -> None:
    def silence(*_: object) -> Decision[Any]:
        return Decision()

    patch.setattr(_quota_reserve, "_again", silence)


def _positions_outside(patch: Patch) -> None:
    commit = Cluster._commit

    def without(self: Cluster, number: int, effects: Any) -> None:  # noqa: ANN401
        if self.transactions % 7 == 0:
            effects.changes.pop(BOOK)
        commit(self, number, effects)

    patch.setattr(Cluster, "_commit", without)


def _tombstones_lost(patch: Patch) -> None:
    commit = Cluster._commit

    def without(self: Cluster, number: int, effects: Any) -> None:  # noqa: ANN401
        for row in [row for row, value in effects.changes.items() if value is None]:
            del effects.changes[row]
        commit(self, number, effects)

    patch.setattr(Cluster, "_commit", without)


def _poison_undoes_its_neighbour(patch: Patch) -> None:
    handle = Pools.handle

    def reads_first(self: Pools, step: Any, record: Any) -> None:  # noqa: ANN401
        POOL_COMMANDS.decode(record.value or b"")
        handle(self, step, record)

    def undo(self: Pools, step: Any) -> None:  # noqa: ANN401
        self._recovered.states[step.partition].rollback()

    patch.setattr(Pools, "handle", reads_first)
    patch.setattr(Pools, "undo", undo)


def _refusal_forgotten(patch: Patch) -> None:
    start = attempts.start

    def says_nothing(state: Any, command: Any, asked: Any) -> Any:  # noqa: ANN401
        decision = start(state, command, asked)
        refused = isinstance(decision.refusal, CommandRefused)
        return decision._replace(orders=()) if refused else decision

    patch.setattr(attempts, "start", says_nothing)


BUGS: Final[dict[str, Bug]] = {
    "token_of_a_result": Bug("any token may tell a result", _token_of_a_result),
    "token_of_a_failure": Bug("any token may tell a failure", _token_of_a_failure),
    "release_forgotten": Bug("a failed task keeps its reservation", _release_forgotten),
    "released_twice": Bug("a release gives twice as much back", _released_twice),
    "limit_not_held": Bug("a limit is held against the amount alone", _limit_not_held),
    "slot_leaked": Bug("a slot is not freed once its task has ended", _slot_leaked),
    "slot_given_away": Bug("a lost attempt's slot is free at once", _slot_given_away),
    "incarnation_not_checked": Bug("any incarnation speaks for its name", _incarnation_not_checked),
    "lease_not_renewed": Bug("a beat renews no lease", _lease_not_renewed),
    "stall_not_counted": Bug("an outage counts as time", _stall_not_counted),
    "timers_lost_at_recovery": Bug("deadlines are forgotten at recovery", _timers_lost_at_recovery),
    "tick_lost": Bug("a tick sees only the first that is due", _tick_lost),
    "retry_not_counted": Bug("retries and losses begin anew each time", _retry_not_counted),
    "made_again": Bug("what is not stored in its time is made again", _made_again),
    "duplicate_not_answered": Bug("who asks twice is answered once", _duplicate_not_answered),
    "positions_outside": Bug("positions stand outside of the transaction", _positions_outside),
    "tombstones_lost": Bug("a deleted row comes back at recovery", _tombstones_lost),
    "poison_undoes_its_neighbour": Bug(
        "what cannot be read undoes the command before it", _poison_undoes_its_neighbour
    ),
    "refusal_forgotten": Bug("a task that does not start leaves its slot", _refusal_forgotten),
}


@contextmanager
def broken(name: str) -> Generator[None]:
    """The flow with this bug in it."""
    with pytest.MonkeyPatch.context() as patch:
        BUGS[name].plant(patch)
        yield
