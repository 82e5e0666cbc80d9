"""Whether a task may start in a pool at all, whoever's turn it is; and who has had enough of it."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from commands.pools import breaking
from schema.ids import PoolId
from schema.policy import PoolPolicy
from schema.words import Scene

if TYPE_CHECKING:
    from commands.pools.state import PoolState


def is_open(state: "PoolState", pool_id: PoolId, scene: Scene, model: str) -> bool:
    """Its model is below its cap, and no breaker keeps its scene off the cards."""
    return not is_full(state, pool_id, model) and breaking.may_start(state, pool_id, scene)


def gate(state: "PoolState", pool_id: PoolId, policy: PoolPolicy) -> Callable[[Scene, str], bool]:
    """`is_open` for many questions in a row, while nothing changes."""
    caps, used = policy.model_caps, state.yard(pool_id).models
    guarded = policy.breaker is not None

    def is_open_now(scene: Scene, model: str) -> bool:
        cap = caps.get(model)
        if cap is not None and used.get(model, 0) >= cap:
            return False
        return not guarded or breaking.may_start(state, pool_id, scene)

    return is_open_now


def is_full(state: "PoolState", pool_id: PoolId, model: str) -> bool:
    """As many attempts of this model have a slot as there may be."""
    cap = state.pool_policy(pool_id).model_caps.get(model)
    return cap is not None and state.yard(pool_id).models.get(model, 0) >= cap


def slots_of_one(policy: PoolPolicy, slots: int) -> int | None:
    """The most slots that one account gets while others wait; None: as many as there are."""
    return None if policy.tenant_share >= 1 else max(int(slots * policy.tenant_share), 1)
