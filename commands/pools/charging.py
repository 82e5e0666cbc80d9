"""Card time charged to accounts, as rows.

At the proposal it is what a task is expected to take, so that a new burst pays at once; when the
slot is free again it is corrected to what it really took.
"""

from typing import TYPE_CHECKING, Final

from commands.decider import Now
from commands.pools.rows import HOLDS_SLOT, LeaseRow, PoolRow, QueuedRow, ShareRow, Stage, share_key
from commands.pools.shares import FORGET_AFTER, NOTHING, Share, amount, charged, returned
from schema.ids import AccountId, PoolId
from schema.policy import Policy, PoolPolicy
from schema.words import Lane

if TYPE_CHECKING:
    from commands.pools.state import PoolState

FORGOTTEN_MAX: Final = 2
"""Rows forgotten with each charge: more than it makes."""
_MEAN_OF: Final = 16
"""The mean moves by this part of what is new."""
_UNNAMED: Final = PoolPolicy(lanes={})
"""The numbers of a pool that a policy does not name, whose runners work on."""


def charge(state: "PoolState", pool_id: PoolId, queued: QueuedRow, now: Now) -> int:
    """A slot is proposed for this task. Hands back what its account was charged."""
    policy = state.pool_policy(pool_id)
    weight = policy.tenant_weights.get(queued.account_id, 1)
    units = amount(policy.expected_seconds * 1000, weight)
    half_life_ms = policy.half_life_seconds * 1000
    share = _share(state, pool_id, queued.lane, queued.account_id)
    after = charged(share, units, now.served_ms, half_life_ms)
    _put(state, pool_id, queued.lane, queued.account_id, after, now)
    forget_old(state, pool_id, now, half_life_ms)
    return units


def correct(state: "PoolState", pool_id: PoolId, lease: LeaseRow, now: Now) -> None:
    """The slot of this attempt is free: its account has had what it really took."""
    if lease.stage not in HOLDS_SLOT or lease.lane is None or lease.account_id is None:
        return
    policy = state.pool_policy(pool_id)
    half_life_ms = policy.half_life_seconds * 1000
    share = _share(state, pool_id, lease.lane, lease.account_id)
    share = returned(share, lease.charged, lease.proposed_ms, half_life_ms)
    weight = policy.tenant_weights.get(lease.account_id, 1)
    units = amount(max(now.served_ms - lease.proposed_ms, 0), weight)
    after = charged(share, units, now.served_ms, half_life_ms)
    _put(state, pool_id, lease.lane, lease.account_id, after, now)


def mean_after(pool: PoolRow, lease: LeaseRow, now: Now) -> int:
    """`mean_ms` of the pool's row once the runner has freed the slot of this attempt."""
    if lease.stage not in (Stage.ACCEPTED, Stage.OVER) or lease.lane is None:
        return pool.mean_ms
    held_ms = max(now.served_ms - lease.proposed_ms, 1)
    if not pool.mean_ms:
        return held_ms
    return max((pool.mean_ms * (_MEAN_OF - 1) + held_ms + _MEAN_OF // 2) // _MEAN_OF, 1)


def forget_old(state: "PoolState", pool_id: PoolId, now: Now, half_life_ms: int) -> None:
    """What was had so long ago that it counts for nothing is forgotten, a few rows at a time."""
    for _ in range(FORGOTTEN_MAX):
        first = state.yard(pool_id).touched.first()
        if first is None or first[0] + FORGET_AFTER * half_life_ms > now.served_ms:
            return
        state.delete(first[1])


def begin_anew(state: "PoolState", after: Policy) -> None:
    """Where the half-life is another one, nobody has had anything: the units do not compare.

    Only pools of which something is known here are looked at: a policy names those of all
    partitions, and to ask for another's would make it one of this partition's.
    """
    for pool_id in state.pools:
        half_life_seconds = after.pools.get(pool_id, _UNNAMED).half_life_seconds
        if half_life_seconds != state.pool_policy(pool_id).half_life_seconds:
            for key in state.yard(pool_id).touched.things():
                state.delete(key)


def _share(state: "PoolState", pool_id: PoolId, lane: Lane, account_id: AccountId) -> Share:
    row = state.share(share_key(pool_id, lane, account_id))
    return NOTHING if row is None else Share(row.epoch, row.value)


def _put(
    state: "PoolState",
    pool_id: PoolId,
    lane: Lane,
    account_id: AccountId,
    share: Share,
    now: Now,
) -> None:
    key = share_key(pool_id, lane, account_id)
    if share.value:
        state.put(key, ShareRow(epoch=share.epoch, value=share.value, touched_ms=now.served_ms))
    else:
        state.delete(key)
