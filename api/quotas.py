"""`GET /v1/quotas`: what the caller has used and has left, by scene, in the windows of now."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from fastapi import APIRouter, Response

from api import contracts
from api.auth import Claims
from api.problems import refusal
from api.reads import Row
from api.wiring import Caller, PartsHere, answer, problems
from schema.ids import NO_TENANT
from schema.policy import Policy, TierPolicy
from schema.refusals import Refusal
from schema.windows import Windows, windows_at
from schema.words import Scene

_CONTRACT = ""
"""The user of rows that belong to the whole account."""
_Rows = Mapping[tuple[str, str, str], Row]
router = APIRouter(tags=["quotas"], responses=problems(401, 403, 503))


@router.get("/v1/quotas", response_model=contracts.QuotasView)
async def get_quotas(parts: PartsHere, claims: Caller) -> Response:
    """What you have used and have left. The decider has the last word when you submit."""
    policy = parts.standing.policy()
    tier = policy.tiers.get(claims.tier)
    if tier is None:
        raise refusal(Refusal.TIER_UNKNOWN)
    windows = windows_at(datetime.now(UTC), policy.timezone)
    rows = await parts.reads.quota_windows(
        claims.account_id, claims.user_id, windows.day.start, windows.month.start
    )
    minute = await parts.reads.quota_minute(claims.account_id, claims.user_id, windows.minute.start)
    by_key = {(row["user_id"], row["scene"], row["kind"]): row for row in rows}
    scenes = [
        _scene(policy, tier, claims, scene, by_key, minute.get(scene, 0), windows)
        for scene in tier.limits
    ]
    return answer(
        {
            "tier": claims.tier,
            "account_id": claims.account_id,
            "policy_version": policy.version,
            "scenes": scenes,
        }
    )


def _scene(
    policy: Policy,
    tier: TierPolicy,
    claims: Claims,
    scene: Scene,
    rows: _Rows,
    minute_used: int,
    windows: Windows,
) -> dict[str, Any]:
    limits = tier.limits[scene]
    day = rows.get((claims.user_id, scene, "day"))
    contract: dict[str, Any] | None = None
    agreed = policy.tenant(claims.tenant_id).credits_month_micros.get(scene)
    if claims.tenant_id != NO_TENANT and agreed is not None:
        contract = _credits(agreed, rows.get((_CONTRACT, scene, "month")), windows)
    return {
        "scene": scene,
        "lane": tier.lane_of(scene),
        "minute": _count(limits.per_minute, minute_used, windows.minute.end),
        "day": _count(limits.per_day, day["submitted"] if day else 0, windows.day.end),
        "month": _credits(
            limits.credits_month_micros, rows.get((claims.user_id, scene, "month")), windows
        ),
        "contract": contract,
    }


def _count(limit: int, used: int, resets_at: datetime) -> dict[str, Any]:
    return {
        "limit": limit,
        "used": used,
        "remaining": max(0, limit - used),
        "resets_at": resets_at,
    }


def _credits(limit_micros: int, row: Row | None, windows: Windows) -> dict[str, Any]:
    topped_up = row["topped_up_micros"] if row else 0
    reserved = row["reserved_micros"] if row else 0
    spent = row["spent_micros"] if row else 0
    limit = limit_micros + topped_up
    return {
        "limit_micros": limit,
        "topped_up_micros": topped_up,
        "reserved_micros": reserved,
        "spent_micros": spent,
        "remaining_micros": max(0, limit - reserved - spent),
        "resets_at": windows.month.end,
    }
