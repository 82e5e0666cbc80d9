"""What operators ask for (scope `operate`): policy, top-ups, lanes, breakers, results, keys."""

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Annotated, Any
from uuid import uuid4

import orjson
from fastapi import APIRouter, Header, Response

from api import contracts
from api.auth import Claims
from api.parts import Parts
from api.problems import Door, at_the_door, refusal, refused
from api.reads import Row
from api.submissions import idempotency_key
from api.tasks import TaskPath, known_id
from api.wiring import Operator, PartsHere, answer, problems
from schema.commands import (
    PauseLane,
    PublishPolicy,
    ReleaseKey,
    ResetBreaker,
    RestoreResult,
    ResumeLane,
    TopUpQuota,
    WithholdResult,
)
from schema.ids import AccountId, CommandId, PoolId, TaskId, UserId, command_id_of
from schema.policy import Policy, PolicyError, read_policy
from schema.refusals import Refusal
from schema.replies import Refused
from schema.routes import Route, Routed, route
from schema.topics import POOL_PARTITIONS, Topic
from schema.words import Lane, Scene, Status

OptionalKey = Annotated[
    str | None,
    Header(
        alias="Idempotency-Key",
        description="The same key again is the same command; without one each call is a new one.",
    ),
]
router = APIRouter(
    prefix="/v1/operator", tags=["operators"], responses=problems(400, 401, 403, 409, 422, 503)
)


@router.post("/policy", response_model=contracts.DoneView)
async def publish_policy(
    parts: PartsHere, claims: Operator, body: contracts.PolicyRequest
) -> Response:
    """Publish a whole policy. Its version must be higher than the one in force."""
    document = orjson.dumps(body.policy)
    try:
        policy = read_policy(document)
    except PolicyError as error:
        raise refusal(Refusal.POLICY_INVALID, detail=str(error)) from None
    commands = [
        (_publish(parts, claims, policy, body.why, place), place) for place in _everywhere(parts)
    ]
    return await _done(parts, commands)


@router.post("/top-up", response_model=contracts.DoneView)
async def top_up(
    parts: PartsHere, claims: Operator, body: contracts.TopUpRequest, key: OptionalKey = None
) -> Response:
    """More credits for this month."""
    command = TopUpQuota(
        command_id=_command_id(claims, "top_up", key),
        account_id=AccountId(body.account_id),
        user_id=UserId(body.user_id) if body.user_id is not None else None,
        scene=body.scene,
        amount_micros=body.amount_micros,
        who=claims.user_id,
        why=body.why,
        reply_to=parts.asker.reply_partition,
    )
    return await _do(parts, command)


@router.post("/lanes/{pool_id}/{lane}/pause", response_model=contracts.DoneView)
async def pause_lane(
    parts: PartsHere,
    claims: Operator,
    pool_id: str,
    lane: Lane,
    body: contracts.WhyRequest,
    key: OptionalKey = None,
) -> Response:
    """Grant nothing more of a lane; what waits keeps its place and its time."""
    command_id = _command_id(claims, "pause", key)
    return await _change_lane(parts, claims, PauseLane, command_id, (pool_id, lane), body.why)


@router.post("/lanes/{pool_id}/{lane}/resume", response_model=contracts.DoneView)
async def resume_lane(
    parts: PartsHere,
    claims: Operator,
    pool_id: str,
    lane: Lane,
    body: contracts.WhyRequest,
    key: OptionalKey = None,
) -> Response:
    """Serve a lane again."""
    command_id = _command_id(claims, "resume", key)
    return await _change_lane(parts, claims, ResumeLane, command_id, (pool_id, lane), body.why)


@router.post("/breakers/{pool_id}/{scene}/reset", response_model=contracts.DoneView)
async def reset_breaker(
    parts: PartsHere,
    claims: Operator,
    pool_id: str,
    scene: Scene,
    body: contracts.WhyRequest,
    key: OptionalKey = None,
) -> Response:
    """Close a breaker by hand: the scene starts in this pool again, and is counted anew."""
    _check_pool(parts, pool_id)
    command = ResetBreaker(
        command_id=_command_id(claims, "reset_breaker", key),
        pool_id=PoolId(pool_id),
        scene=scene,
        who=claims.user_id,
        why=body.why,
        reply_to=parts.asker.reply_partition,
    )
    return await _do(parts, command)


@router.post("/results/{task_id}/withhold", response_model=contracts.DoneView)
async def withhold_result(
    parts: PartsHere,
    claims: Operator,
    task_id: TaskPath,
    body: contracts.WhyRequest,
    key: OptionalKey = None,
) -> Response:
    """Hand a result out no more; its owner is told why. Addresses that he has end in an hour.

    A preview and its full size are one work: either goes with the other.
    """
    command = WithholdResult(
        command_id=_command_id(claims, "withhold", key),
        **await _result_of(parts, task_id),
        reason=body.why,
        who=claims.user_id,
        reply_to=parts.asker.reply_partition,
    )
    return await _do(parts, command)


@router.post("/results/{task_id}/restore", response_model=contracts.DoneView)
async def restore_result(
    parts: PartsHere,
    claims: Operator,
    task_id: TaskPath,
    body: contracts.WhyRequest,
    key: OptionalKey = None,
) -> Response:
    """Hand a withheld result out again, as its preview or full size; or make a cold one hot."""
    command = RestoreResult(
        command_id=_command_id(claims, "restore", key),
        **await _result_of(parts, task_id),
        who=claims.user_id,
        why=body.why,
        reply_to=parts.asker.reply_partition,
    )
    return await _do(parts, command)


async def _result_of(parts: Parts, task_id: str) -> dict[str, Any]:
    """Whose result it is; raises Problem (404, 409) where there is none."""
    row = await parts.tasks.get(known_id(task_id))
    if row is None:
        raise refusal(Refusal.TASK_UNKNOWN)
    if row["status"] != Status.SUCCEEDED:
        raise at_the_door(Door.RESULT_NOT_READY, f"The task is {row['status']}.")
    if row["result_state"] == "deleted":
        raise refusal(Refusal.RESULT_DELETED)
    found = {name: row[name] for name in ("task_id", "user_id", "tenant_id")}
    return found | {"publishes": await _preview_of(parts, row)}


async def _preview_of(parts: Parts, row: Row) -> TaskId | None:
    """The preview that this result is the full size of; not one that is deleted, and forgotten."""
    if row["publishes"] is None:
        return None
    preview = await parts.tasks.get(TaskId(row["publishes"]))
    if preview is None or preview["result_state"] == "deleted":
        return None
    return TaskId(row["publishes"])


@router.post("/keys/release", response_model=contracts.DoneView, status_code=202)
async def release_key(
    parts: PartsHere, claims: Operator, body: contracts.ReleaseRequest, key: OptionalKey = None
) -> Response:
    """Let the commands parked behind a key go on, in their order. Nobody answers; the log tells."""
    if body.partition >= parts.asker.partitions:
        raise refusal(
            Refusal.POOL_UNKNOWN, detail=f"There are {parts.asker.partitions} partitions."
        )
    command = ReleaseKey(
        command_id=_command_id(claims, "release", key),
        key=body.key,
        who=claims.user_id,
        why=body.why,
    )
    await parts.asker.tell(command, Route(Topic(body.topic), body.partition, body.key))
    return answer({"status": "pending"}, 202)


def _command_id(claims: Claims, kind: str, key: str | None) -> CommandId:
    """Derived from the key; a request without one is a command of its own."""
    raw = None if key is None else key.encode("latin-1", "replace")
    name = uuid4().hex if raw is None else idempotency_key(raw)
    return command_id_of(kind, claims.user_id, name)


def _everywhere(parts: Parts) -> list[Route]:
    """Every partition that keeps a policy of its own."""
    return [
        Route(topic, partition, "policy")
        for topic in (Topic.QUOTA_COMMANDS, Topic.POOL_COMMANDS)
        for partition in range(parts.asker.partitions)
    ]


def _publish(parts: Parts, claims: Claims, policy: Policy, why: str, place: Route) -> PublishPolicy:
    return PublishPolicy(
        # Not of the content: the same version with another content is for the decider to refuse.
        command_id=command_id_of(
            "policy", str(policy.version), uuid4().hex, place.topic, str(place.partition)
        ),
        policy=policy,
        who=claims.user_id,
        why=why,
        reply_to=parts.asker.reply_partition,
    )


async def _change_lane(
    parts: Parts,
    claims: Claims,
    kind: type[PauseLane | ResumeLane],
    command_id: CommandId,
    place: tuple[str, Lane],
    why: str,
) -> Response:
    pool_id, lane = place
    _check_pool(parts, pool_id, lane)
    command = kind(
        command_id=command_id,
        pool_id=PoolId(pool_id),
        lane=lane,
        who=claims.user_id,
        why=why,
        reply_to=parts.asker.reply_partition,
    )
    return await _do(parts, command)


def _check_pool(parts: Parts, pool_id: str, lane: Lane | None = None) -> None:
    """Raises Problem (404) for a pool or lane that no policy has."""
    pool = parts.standing.policy().pools.get(PoolId(pool_id))
    if pool is None or pool_id not in POOL_PARTITIONS:
        raise refusal(Refusal.POOL_UNKNOWN)
    if lane is not None and lane not in pool.lanes:
        raise refusal(Refusal.POOL_UNKNOWN)


async def _do(parts: Parts, command: Routed) -> Response:
    """Ask for one thing, at the place that it belongs to."""
    return await _done(parts, [(command, route(command, parts.asker.partitions))])


async def _done(parts: Parts, commands: Sequence[tuple[Any, Route]]) -> Response:
    """Ask, and answer for all of them: the first refusal, or done, or on their way."""
    for _, place in commands:
        parts.asker.check(place)
    replies = await asyncio.gather(*(parts.asker.ask(*command) for command in commands))
    for reply in replies:
        if isinstance(reply, Refused):
            raise refused(reply, datetime.now(UTC))
    if any(reply is None for reply in replies):
        return answer({"status": "pending"}, 202)
    return answer({"status": "done"})
