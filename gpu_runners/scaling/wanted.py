"""How many cards each pool wants, as the log tells it: the last `PoolScaled`, within the policy.

Only the log decides; whoever reads it from its beginning comes to the same numbers. So that a start
need not, what was read up to some position can be written down as `Known`.
"""

from collections.abc import Iterable
from typing import NamedTuple

import msgspec

from schema.events import Event, PolicyAdopted, PoolScaled
from schema.ids import PoolId
from schema.policy import Policy, PoolPolicy, ScalingPolicy

MARKS = (b"pool.scaled.", b"policy.adopted.")
"""Records without any of these bytes say nothing of cards, and need not be decoded."""


class Want(NamedTuple):
    """What one pool is to have."""

    cards: int
    """A runner is a card."""
    slots: int
    """Of each card."""
    spot: bool


class Known(msgspec.Struct, frozen=True, kw_only=True):
    """What pool-events said up to these positions."""

    positions: dict[int, int]
    """By partition."""
    policy: Policy | None
    cards: dict[PoolId, int]


class Wanted:
    """Folds pool events; `only` names the pools to look at (empty: all that scale)."""

    def __init__(self, policy: Policy | None = None, only: Iterable[str] = ()) -> None:
        self._policy = policy
        self._only = frozenset(only)
        self._cards: dict[PoolId, int] = {}

    def apply(self, event: Event) -> bool:
        """Take an event in; whether it may have changed anything."""
        match event:
            case PoolScaled(pool_id=pool_id, cards=cards):
                self._cards[pool_id] = cards
            case PolicyAdopted(policy=policy):
                if self._policy is not None and policy.version <= self._policy.version:
                    return False
                self._policy = policy
            case _:
                return False
        return True

    def known(self, positions: dict[int, int]) -> Known:
        """All that was taken in, as of these positions."""
        return Known(positions=positions, policy=self._policy, cards=dict(self._cards))

    def go_on_from(self, known: Known) -> None:
        """Begin with what an earlier process had taken in."""
        self._cards = dict(known.cards)
        mine, theirs = self._policy, known.policy
        if mine is None or (theirs is not None and theirs.version > mine.version):
            self._policy = theirs

    def pools(self) -> dict[PoolId, Want] | None:
        """What each pool is to have; None: there is no policy yet, so nobody knows."""
        if self._policy is None:
            return None
        return {
            pool_id: self._want(pool_id, pool, pool.scaling)
            for pool_id, pool in sorted(self._policy.pools.items())
            if pool.scaling is not None and (not self._only or pool_id in self._only)
        }

    def _want(self, pool_id: PoolId, pool: PoolPolicy, scaling: ScalingPolicy) -> Want:
        """Never more than the policy allows, whatever an older decision says."""
        cards = self._cards.get(pool_id, scaling.cards_min)
        budget = max(scaling.budget_cards, scaling.cards_min) if scaling.budget_cards else None
        most = scaling.cards_max if budget is None else min(scaling.cards_max, budget)
        return Want(min(cards, most), pool.slots_per_card, pool.spot)
