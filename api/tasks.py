"""Tasks: read one, list one's own, cancel, retry."""

import asyncio
import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Request, Response
from pydantic import BaseModel, ConfigDict, Field

from api import contracts, views
from api.auth import Claims
from api.consistency import HEADER, BadConsistencyTokenError
from api.parts import Parts
from api.problems import Door, Problem, at_the_door, rate_headers, refusal, refused, remaining_view
from api.reads import Row
from api.submissions import submit_id
from api.wiring import Caller, NoBody, PartsHere, answer, problems
from schema.commands import CancelTask, RetryTask
from schema.ids import TASK_ID_LENGTH, TaskId, command_id_of, shard_of
from schema.refusals import Refusal
from schema.replies import Refused
from schema.routes import route
from schema.words import Scene, Status

CONSISTENT_SECONDS = 1.0
_POLL_SECONDS = 0.04
_ID = re.compile(rf"[0-9a-z]{{{TASK_ID_LENGTH - 6}}}[0-9]{{6}}")
_CURSOR = re.compile(r"[A-Za-z0-9_-]{10,120}={0,2}")

TaskPath = Annotated[str, Path(description="The task's id.")]


class ListQuery(BaseModel):
    """What of one's tasks to list."""

    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True)

    status: list[Status] = Field(
        default=[], max_length=7, description="Only these; may be repeated."
    )
    scene: Scene | None = None
    limit: int = Field(default=20, ge=1, le=100)
    cursor: str | None = Field(
        default=None, max_length=200, description="`next_cursor` of the last page."
    )


def own_id(claims: Claims, text: str) -> TaskId:
    """A task id that may be this caller's; raises Problem (404): another shard is another user."""
    task_id = known_id(text)
    if shard_of(task_id) != shard_of(claims.user_id):
        raise refusal(Refusal.TASK_UNKNOWN)
    return task_id


def known_id(text: str) -> TaskId:
    """A task id of anybody; raises Problem (404)."""
    if not _ID.fullmatch(text):
        raise refusal(Refusal.TASK_UNKNOWN)
    return TaskId(text)


def is_of(row: Row, claims: Claims) -> bool:
    """Whether a row belongs to the caller."""
    return bool(row["user_id"] == claims.user_id and row["tenant_id"] == claims.tenant_id)


async def own_task(parts: Parts, claims: Claims, task_id: TaskId) -> Row | None:
    """The caller's task as the read model has it now."""
    row = await parts.tasks.get(task_id)
    return row if row is not None and is_of(row, claims) else None


def promised_seq(parts: Parts, request: Request, task_id: TaskId) -> int | None:
    """What a consistency token (header or query) says of this task; None without one.

    Raises Problem (400).
    """
    token = request.headers.get(HEADER) or request.query_params.get("consistency")
    if not token:
        return None
    try:
        promise = parts.tokens.read(token)
    except BadConsistencyTokenError:
        raise at_the_door(Door.CONSISTENCY_INVALID) from None
    if promise.task_id != task_id:
        raise at_the_door(Door.CONSISTENCY_INVALID)
    return promise.seq


async def read_task(
    parts: Parts, claims: Claims, task_id: TaskId, seq: int | None
) -> dict[str, Any]:
    """A task, `pending`, or the refusal of its submission; raises Problem (404).

    With a promised `seq` it waits up to a second until the read model has it.
    """
    row = await own_task(parts, claims, task_id)
    if seq is not None and (row is None or row["seq"] < seq):
        row = await _caught_up(parts, claims, task_id, seq)
        if row is None and await newest_refusal(parts, claims, task_id) is None:
            return {"task_id": task_id, "status": "pending"}
    if row is not None:
        return (await task_views(parts, claims, [row]))[0]
    problem = await _refusal_of(parts, claims, task_id)
    if problem is None:
        raise refusal(Refusal.TASK_UNKNOWN)
    return {"task_id": task_id, "status": "refused", "refusal": problem.document()}


async def _caught_up(parts: Parts, claims: Claims, task_id: TaskId, seq: int) -> Row | None:
    """The row once it is at `seq` (a promise of 0 asks for any row); None: not in time."""
    try:
        async with asyncio.timeout(CONSISTENT_SECONDS):
            while True:
                row = await own_task(parts, claims, task_id)
                if row is not None and row["seq"] >= seq:
                    return row
                if row is None and seq == 0 and await newest_refusal(parts, claims, task_id):
                    return None
                # The projection commits a few times a second and has no way to tell us sooner.
                await asyncio.sleep(_POLL_SECONDS)
    except TimeoutError:
        return None


async def newest_refusal(parts: Parts, claims: Claims, task_id: TaskId) -> Problem | None:
    """What a submission that was answered with a promise came to, if it was refused.

    Asked again and not answered yet, the refusal that stands there is the one before.
    """
    if parts.asker.is_under_way(submit_id(task_id)):
        return None
    return await _refusal_of(parts, claims, task_id)


async def _refusal_of(parts: Parts, claims: Claims, task_id: TaskId) -> Problem | None:
    row = (await parts.reads.refused_submissions([task_id])).get(task_id)
    if row is None or row["user_id"] != claims.user_id:
        return None
    return views.refused_submission(row)


async def task_views(parts: Parts, claims: Claims, rows: list[Row]) -> list[dict[str, Any]]:
    """Tasks as their owner reads them, with the latest progress of those that run."""
    running = [row["task_id"] for row in rows if row["status"] == Status.RUNNING]
    latest = await parts.live.progress(running)
    shown: list[dict[str, Any]] = []
    for row in rows:
        report = latest.get(row["task_id"])
        percent = report.percent if report and report.token == row["token"] else None
        private = views.opened(parts.keys, claims.user_id, row["private"])
        shown.append(views.task_view(row, private, percent))
    return shown


def make_cursor(row: Row) -> str:
    """The place of a row in a list, newest first."""
    micros = round(row["created_at"].timestamp() * 1_000_000)
    return urlsafe_b64encode(f"{micros}.{row['task_id']}".encode()).decode().rstrip("=")


def read_cursor(text: str) -> tuple[datetime, str]:
    """A place in a list; raises Problem (400)."""
    if not _CURSOR.fullmatch(text):
        raise at_the_door(Door.CURSOR_INVALID)
    try:
        micros, _, task_id = (
            urlsafe_b64decode(text + "=" * (-len(text) % 4)).decode().partition(".")
        )
        at = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=int(micros))
    except (ValueError, OverflowError):
        raise at_the_door(Door.CURSOR_INVALID) from None
    if not _ID.fullmatch(task_id):
        raise at_the_door(Door.CURSOR_INVALID)
    return at, task_id


router = APIRouter(tags=["tasks"], responses=problems(400, 401, 404, 503))


@router.get("/v1/tasks", response_model=contracts.TaskList)
async def list_tasks(
    parts: PartsHere, claims: Caller, query: Annotated[ListQuery, Query()]
) -> Response:
    """Your tasks, newest first."""
    before = read_cursor(query.cursor) if query.cursor else None
    rows = await parts.reads.list_tasks(
        claims.user_id,
        statuses=[status.value for status in query.status] or None,
        scene=query.scene,
        before=before,
        limit=query.limit + 1,
    )
    more = len(rows) > query.limit
    rows = rows[: query.limit]
    shown = await task_views(parts, claims, rows)
    return answer({"tasks": shown, "next_cursor": make_cursor(rows[-1]) if more else None})


@router.get("/v1/tasks/{task_id}", response_model=contracts.TaskView | contracts.NoTaskYet)
async def get_task(
    parts: PartsHere, claims: Caller, task_id: TaskPath, request: Request
) -> Response:
    """A task. `Cutlog-Consistency` (or `?consistency=`) makes it wait up to 1 s for what you know.

    A submission that was refused is told here for 24 hours (`status` `refused`).
    """
    own = own_id(claims, task_id)
    found = await read_task(parts, claims, own, promised_seq(parts, request, own))
    if found["status"] == "pending":
        return answer(found, 202, {"retry-after": "1"})
    return answer(found)


@router.post(
    "/v1/tasks/{task_id}/cancel", response_model=contracts.ActionView, responses=problems(409)
)
async def cancel_task(
    parts: PartsHere, claims: Caller, task_id: TaskPath, _body: NoBody = None
) -> Response:
    """End a task before its end. Doing it twice is doing it once."""
    own = own_id(claims, task_id)
    command = CancelTask(
        command_id=command_id_of("cancel", own),
        task_id=own,
        user_id=claims.user_id,
        tenant_id=claims.tenant_id,
        reply_to=parts.asker.reply_partition,
    )
    return await _act(parts, claims, own, command)


@router.post(
    "/v1/tasks/{task_id}/retry",
    response_model=contracts.ActionView,
    responses=problems(403, 409, 429),
)
async def retry_task(
    parts: PartsHere, claims: Caller, task_id: TaskPath, request: Request, _body: NoBody = None
) -> Response:
    """Try a FAILED task again by hand, for 7 days; it reserves its price anew."""
    own = own_id(claims, task_id)
    row = await present_task(parts, claims, own, promised_seq(parts, request, own))
    if row["status"] != Status.FAILED:
        raise refusal(Refusal.TASK_NOT_FAILED, detail=row["status"])
    command = RetryTask(
        # Of this failure: asking again before the next one is the same retry.
        command_id=command_id_of("retry", own, str(row["seq"])),
        task_id=own,
        user_id=claims.user_id,
        tenant_id=claims.tenant_id,
        account_id=claims.account_id,
        scene=Scene(row["scene"]),
        tier=claims.tier,
        materials=len(row["material_ids"]),
        reply_to=parts.asker.reply_partition,
    )
    return await _act(parts, claims, own, command)


async def present_task(parts: Parts, claims: Claims, task_id: TaskId, seq: int | None) -> Row:
    """The caller's task, not older than promised where that can be had; raises Problem (404)."""
    row = await own_task(parts, claims, task_id)
    if seq is not None and (row is None or row["seq"] < seq):
        row = await _caught_up(parts, claims, task_id, seq) or row
    if row is None:
        raise refusal(Refusal.TASK_UNKNOWN)
    return row


async def _act(
    parts: Parts, claims: Claims, task_id: TaskId, command: CancelTask | RetryTask
) -> Response:
    """Ask for a cancel or a retry, and answer."""
    place = route(command, parts.asker.partitions)
    parts.asker.check(place)
    reply = await parts.asker.ask(command, place)
    now = datetime.now(UTC)
    if isinstance(reply, Refused):
        # Deciders forget what ended a day ago; the read model knows that it was there.
        if reply.reason is Refusal.TASK_UNKNOWN and await own_task(parts, claims, task_id):
            raise refusal(Refusal.TASK_ENDED)
        raise refused(reply, now)
    seq = reply.seq if reply else 0
    status = reply.status if reply else "pending"
    remaining = reply.remaining if reply else None
    body = {
        "task_id": task_id,
        "status": status,
        "seq": seq,
        "reserved_micros": reply.reserved_micros if reply else None,
        "remaining": remaining_view(remaining) if remaining else None,
        "consistency_token": parts.tokens.sign(task_id, seq),
    }
    headers = rate_headers(remaining, now, None) if remaining else {}
    return answer(body, 200 if reply else 202, headers)
