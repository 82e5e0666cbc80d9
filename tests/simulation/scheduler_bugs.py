"""Bugs of the scheduler on purpose, for the fast simulation: what its watch must find.

Like `bugs`, which breaks the flow around the real writer: patched in for one seed, taken out again.
"""

# A bug goes where it hurts, private or not.
# pyright: reportPrivateUsage=false

import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any, Final

import pytest
from msgspec.structs import replace

from commands.decider import Decision
from commands.pools import breaking, charging, gates, preempting
from commands.pools.preempting import Contest
from commands.pools.rows import Stage
from commands.tasks import card_time, losing
from schema import commands as c
from schema import events as e
from schema.words import Lane
from tests.simulation import bugs
from tests.simulation.bugs import Bug, Patch

# Packages of deciders export functions under the names of their modules.
_pool_decide = sys.modules["commands.pools.decide"]
_pool_order = sys.modules["commands.pools.order"]
_pool_state = sys.modules["commands.pools.state"]
_pool_steps = sys.modules["commands.pools.steps"]
_pool_evolve = sys.modules["commands.pools.evolve"]
_tasks_attempts = sys.modules["commands.tasks.attempts"]


def _nothing(*_: object) -> None:
    return None


def _none_is_full(*_: object) -> bool:
    return False


def _free_of_charge(*_: object) -> int:
    return 0


def _p0_is_a_victim(patch: Patch) -> None:
    def victim(self: Contest, key: str) -> Any:  # noqa: ANN401
        lease = self._state.lease(key)
        if lease is None or lease.stage is not Stage.ACCEPTED or lease.yield_until_ms:
            return None
        runner = self._state.runner(f"runner/{self._pool_id}/{lease.runner_id}")
        return None if runner is None or lease.lane is None else (lease, runner)

    patch.setattr(Contest, "_victim", victim)


def _patience_of(name: str, value: int) -> Callable[[Patch], None]:
    """As if the policy said so, where victims are looked for."""

    def plant(patch: Patch) -> None:
        victim = Contest.victim

        def impatient(self: Contest, policy: Any, served_ms: int) -> str | None:  # noqa: ANN401
            return victim(self, replace(policy, **{name: value}), served_ms)

        patch.setattr(Contest, "victim", impatient)

    return plant


def _promise_forgotten(patch: Patch) -> None:
    """Nobody notes for whom a slot is being emptied, so he seeks, and finds, again."""
    changed = Contest.lease_changed

    def forgets(self: Contest, key: str, old: Any, row: Any) -> None:  # noqa: ANN401
        before = None if old is None else replace(old, for_task=None)
        after = None if row is None else replace(row, for_task=None)
        changed(self, key, before, after)
        if row is not None and row.for_task is not None:
            waiting = f"queued/{self._pool_id}/{row.for_task}"
            self.queued_changed(waiting, self._state.queued(waiting))

    patch.setattr(Contest, "lease_changed", forgets)


def _held_room_stolen(patch: Patch) -> None:
    patch.setattr(preempting, "hand_over", _nothing)


def _breaker_stays_open(patch: Patch) -> None:
    def much_later(state: Any, pool: Any, event: Any, now: Any) -> Any:  # noqa: ANN401
        after = opened(state, pool, event, now)
        key = f"breaker/{event.pool_id}/{event.scene}"
        row = state.rows[key]
        state.put(key, replace(row, until_ms=row.until_ms * 2))
        return after

    opened = breaking.opened
    patch.setitem(_pool_evolve.EVOLVE, e.BreakerOpened, much_later)


def _breaker_never_closes(patch: Patch) -> None:
    def follow(draft: Any, end: c.EndAttempt, lease: Any) -> None:  # noqa: ANN401
        row = draft.state.breaker(end.pool_id, lease.scene)
        if row is None or row.state.value != "half_open" or not end.ended_well:
            followed(draft, end, lease)

    followed = breaking.follow
    patch.setattr(breaking, "follow", follow)


def _cap_not_looked_at(patch: Patch) -> None:
    patch.setattr(gates, "is_full", _none_is_full)

    def gate(state: Any, pool_id: Any, _policy: Any) -> Any:  # noqa: ANN401
        def is_open(scene: Any, _model: str) -> bool:  # noqa: ANN401
            return breaking.may_start(state, pool_id, scene)

        return is_open

    patch.setattr(gates, "gate", gate)


def _share_not_charged(patch: Patch) -> None:
    patch.setattr(charging, "charge", _free_of_charge)
    patch.setattr(charging, "correct", _nothing)


def _share_charged_to_some(patch: Patch) -> None:
    charge = charging.charge

    def late_payer(state: Any, pool_id: Any, queued: Any, now: Any) -> int:  # noqa: ANN401
        return charge(state, pool_id, queued, now) if queued.account_id[-1] in "02468" else 0

    patch.setattr(charging, "charge", late_payer)
    patch.setattr(charging, "correct", _nothing)


def _slots_of_one_without_end(patch: Patch) -> None:
    patch.setattr(gates, "slots_of_one", _nothing)


def _floor_forgotten(patch: Patch) -> None:
    def best_only(lanes: Any, _passed: Any, _floors: Any) -> int:  # noqa: ANN401
        return int(lanes[0])

    patch.setattr(_pool_order, "next_lane", best_only)


def _pause_forgotten(patch: Patch) -> None:
    first = _pool_order.Waiting.first

    def serves_all(self: Any, pool: Any, terms: Any) -> Any:  # noqa: ANN401
        return first(self, replace(pool, since_ms=(None, None, None)), terms)

    patch.setattr(_pool_order.Waiting, "first", serves_all)


def _loss_counted(patch: Patch) -> None:
    lost = losing.attempt_lost

    def counted(*args: Any, **more: Any) -> Any:  # noqa: ANN401
        decision: Decision[Any] = lost(*args, **more)
        events = tuple(
            replace(event, counted=True) if isinstance(event, e.TaskRequeued) else event
            for event in decision.events
        )
        return decision._replace(events=events)

    patch.setattr(losing, "attempt_lost", counted)


def _kept_counted_twice(patch: Patch) -> None:
    """Whoever goes on from a checkpoint tells what that kept as its own card time too."""
    told = card_time.told

    def twice(state: Any, card_ms: int) -> Any:  # noqa: ANN401
        return told(state, card_ms + int(state.course.checkpoint or 0))

    patch.setattr(losing, "told", twice)


def _kept_for_ever(patch: Patch) -> None:
    """A checkpoint keeps more than was worked since the one before."""
    give_back = losing.give_back

    def all_of_it(state: Any, command: Any, asked: Any) -> Any:  # noqa: ANN401
        decision: Decision[Any] = give_back(state, command, asked)
        events = tuple(
            replace(event, saved_ms=int(event.checkpoint or 0))
            if isinstance(event, e.TaskRequeued)
            else event
            for event in decision.events
        )
        return decision._replace(events=events)

    patch.setattr(losing, "give_back", all_of_it)


def _preempted_for_anybody(patch: Patch) -> None:
    """By the aged value, not by class: whoever waits turns the other round."""

    def arrival(self: Contest, key: str) -> int | None:
        row = self._state.queued(key)
        return None if row is None else row.arrival

    patch.setattr(Contest, "_arrival", arrival)
    queued_changed = Contest.queued_changed

    def changed(self: Contest, key: str, row: Any) -> None:  # noqa: ANN401
        if row is not None:
            row = replace(row, lane=Lane.P0)
        queued_changed(self, key, row)

    patch.setattr(Contest, "queued_changed", changed)


BUGS: Final[dict[str, Bug]] = {
    "p0_is_a_victim": Bug("p0 preempts p0, which takes it back: ping-pong", _p0_is_a_victim),
    "preempted_for_anybody": Bug("who has waited long preempts too", _preempted_for_anybody),
    "no_budget": Bug("a task is preempted without end", _patience_of("preemptions_max", 10**9)),
    "no_minimum_run": Bug("who has just begun is preempted", _patience_of("min_run_seconds", 0)),
    "promise_forgotten": Bug("two victims for one waiting task", _promise_forgotten),
    "held_room_stolen": Bug("room that was emptied goes to anybody", _held_room_stolen),
    "breaker_stays_open": Bug("a breaker is never half open", _breaker_stays_open),
    "breaker_never_closes": Bug("good probes close no breaker", _breaker_never_closes),
    "cap_not_looked_at": Bug("a model has more slots than its cap", _cap_not_looked_at),
    "share_not_charged": Bug("card time is charged to nobody", _share_not_charged),
    "share_charged_to_some": Bug("card time is charged to half of all", _share_charged_to_some),
    "slots_of_one": Bug("one account takes all slots", _slots_of_one_without_end),
    "floor_forgotten": Bug("a lane waits for ever behind better ones", _floor_forgotten),
    "pause_forgotten": Bug("a paused lane is served", _pause_forgotten),
    "loss_counted": Bug("a loss burns a retry", _loss_counted),
    "kept_counted_twice": Bug("kept card time is told again", _kept_counted_twice),
    "kept_for_ever": Bug("a checkpoint keeps more than was worked", _kept_for_ever),
    "slot_leaked": Bug("a slot is not freed once its task has ended", bugs._slot_leaked),
    "slot_given_away": Bug("a lost attempt's slot is free at once", bugs._slot_given_away),
    "outage_counts_as_time": Bug("TTLs run while nobody serves", bugs._stall_not_counted),
    "tick_lost": Bug("a tick sees only the first that is due", bugs._tick_lost),
    "token_not_checked": Bug("any token may tell a result", bugs._token_of_a_result),
}


@contextmanager
def broken(name: str) -> Generator[None]:
    """The scheduler with this bug in it."""
    with pytest.MonkeyPatch.context() as patch:
        BUGS[name].plant(patch)
        yield
