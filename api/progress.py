"""Progress as it happens: the stream of a task, of all of a user's tasks, and the long poll.

Only stored events have an id; on return with it (`Last-Event-ID`) what came after it is told,
then what comes. `progress` is short-lived, `snapshot` stands in for events that cannot be told
any more. A task's stream ends with the task; a client that returns then is answered 204 and
stays away.
"""

import asyncio
import math
import time
from collections.abc import AsyncGenerator, AsyncIterator, Generator
from contextlib import aclosing, contextmanager
from typing import Annotated, Any

import orjson
from fastapi import APIRouter, Header, Query, Request, Response
from sse_starlette.sse import EventSourceResponse

from api import contracts
from api.auth import Claims
from api.feeds import Item, MovedLogError, Snapshot, TaskFeed, Told, UserFeed, read_cursor, told
from api.parts import Parts
from api.problems import Door, at_the_door, refusal
from api.reads import Row
from api.tasks import TaskPath, newest_refusal, own_id, own_task, promised_seq, task_views
from api.wiring import Caller, PartsHere, answer, problems
from schema.ids import TaskId, user_partition
from schema.progress import ProgressReported
from schema.refusals import Refusal
from schema.words import Status

PING_SECONDS = 15
SEND_SECONDS = 10.0
"""A client that takes nothing for so long is cut off; its cursor brings it back."""
WAIT_SECONDS = 30.0
APPEAR_SECONDS = 2.0
"""How long a stream waits for a task that was submitted a moment ago to be shown."""
RETRY_MS = 1_000
RETRY_ENDED_MS = 60_000
_POLL_SECONDS = 0.05
_PAGE = 500

LastEventId = Annotated[str | None, Header(alias="Last-Event-ID", max_length=100)]
router = APIRouter(tags=["progress"], responses=problems(400, 401, 404, 503))
_STREAM: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "Server-sent events: `id` on stored ones, `event` their name, `data` JSON.",
        "content": {"text/event-stream": {"schema": {"type": "string"}}},
    },
}


@router.get(
    "/v1/tasks/{task_id}/events",
    response_class=EventSourceResponse,
    responses=_STREAM | {204: {"description": "The task has ended and you have heard it all."}},
)
async def task_events(
    parts: PartsHere,
    claims: Caller,
    task_id: TaskPath,
    request: Request,
    last_event_id: LastEventId = None,
) -> Response:
    """What happens to a task: from its beginning, or after `Last-Event-ID`, until its end."""
    own = own_id(claims, task_id)
    promised = promised_seq(parts, request, own)
    seq = promised or 0
    task = await _appeared(parts, claims, own, promised)
    feed = TaskFeed(
        parts.reads,
        parts.live,
        task,
        partition=user_partition(claims.user_id, parts.asker.partitions),
        epoch=_epoch(parts),
        promised=seq,
    )
    cursor = read_cursor(last_event_id)
    if _is_over(task, seq) and await feed.nothing_left(cursor):
        return Response(status_code=204)
    items = feed.run(cursor_given=last_event_id is not None, cursor=cursor)
    return _stream(parts, claims, "task", items)


@router.get("/v1/events", response_class=EventSourceResponse, responses=_STREAM)
async def user_events(
    parts: PartsHere, claims: Caller, last_event_id: LastEventId = None
) -> Response:
    """What happens to all of your tasks: from now on, or after `Last-Event-ID`."""
    feed = UserFeed(
        parts.reads,
        parts.live,
        claims.user_id,
        partition=user_partition(claims.user_id, parts.asker.partitions),
        epoch=_epoch(parts),
    )
    items = feed.run(cursor_given=last_event_id is not None, cursor=read_cursor(last_event_id))
    return _stream(parts, claims, "user", items)


@router.get("/v1/tasks/{task_id}/wait", response_model=contracts.WaitView)
async def wait_for_task(
    parts: PartsHere,
    claims: Caller,
    task_id: TaskPath,
    request: Request,
    after: Annotated[int, Query(ge=0, le=2**53)] = 0,
) -> Response:
    """The long poll: answers as soon as the task has an event after `after`, or after 30 s.

    It tells what the stream tells; ask again with the `seq` of the last event.
    """
    own = own_id(claims, task_id)
    promised = promised_seq(parts, request, own)
    seq = promised or 0
    await _appeared(parts, claims, own, promised)
    epoch = _epoch(parts)
    with _counted(parts, "wait"):
        task, events = await _waited(parts, claims, own, after, seq)
    shown = [event_document(told(event, epoch)) for event in events]
    ended = _is_over(task, seq) and len(events) < _PAGE
    return answer(
        {
            "task": (await task_views(parts, claims, [task]))[0],
            "events": shown,
            "complete": not events or events[0].seq == after + 1,
            "ended": ended,
        }
    )


async def _waited(
    parts: Parts, claims: Claims, task_id: TaskId, after: int, promised: int
) -> tuple[Row, list[Any]]:
    """The task and its events after `after`, once there are any, it has ended, or time is up."""
    until = time.monotonic() + WAIT_SECONDS
    async with parts.live.listen(claims.user_id) as listener:
        while True:
            listener.stale = False
            # The row first: events that are read after it cannot be older than it.
            task = await own_task(parts, claims, task_id)
            events = await parts.reads.task_events(task_id, after, _PAGE)
            if task is None:
                raise refusal(Refusal.TASK_UNKNOWN)
            left = until - time.monotonic()
            if events or _is_over(task, promised) or left <= 0 or parts.stopping:
                return task, events
            while not listener.stale:
                left = max(0.0, until - time.monotonic())
                news = await listener.wait(left if parts.live.connected else min(left, 1.0))
                if any(event.task_id == task_id for some in news for event in some.events):
                    break


async def _appeared(parts: Parts, claims: Claims, task_id: TaskId, promised: int | None) -> Row:
    """The caller's task, which may have been submitted (or retried) a moment ago.

    Raises Problem when it does not appear: 404, or 503 when our own promise says that it is there.
    """
    until = time.monotonic() + APPEAR_SECONDS
    while True:
        task = await own_task(parts, claims, task_id)
        late = time.monotonic() > until
        if task is not None and (late or task["seq"] >= (promised or 0)):
            return task
        if late:
            if promised is None or await newest_refusal(parts, claims, task_id) is not None:
                raise refusal(Refusal.TASK_UNKNOWN)
            raise at_the_door(Door.READ_MODEL_AWAY, "It has not come to the task yet.")
        # The projection commits a few times a second and has no way to tell us sooner.
        await asyncio.sleep(_POLL_SECONDS)


def _is_over(task: Row, promised: int) -> bool:
    """Whether the task has ended, and not merely as far as an old row knows."""
    return Status(task["status"]).ended and bool(task["seq"] >= promised)


def _epoch(parts: Parts) -> str:
    if parts.standing.epoch is None:
        raise at_the_door(Door.READ_MODEL_AWAY)
    return parts.standing.epoch


@contextmanager
def _counted(parts: Parts, kind: str) -> Generator[None]:
    """Counts what stays open; raises Problem (503) when too much is."""
    if parts.stopping:
        raise at_the_door(Door.STOPPING, retry_after=1)
    if parts.streams >= parts.settings.api.sse_connections_max:
        raise at_the_door(Door.TOO_MANY_STREAMS, retry_after=10)
    parts.streams += 1
    gauge = parts.measures.streams.labels(kind)
    gauge.inc()
    try:
        yield
    finally:
        parts.streams -= 1
        gauge.dec()


def _stream(
    parts: Parts, claims: Claims, kind: str, items: AsyncGenerator[list[Item]]
) -> EventSourceResponse:
    """The response; refused here, before it begins, when no stream is free."""
    with _counted(parts, kind):
        pass  # it counts from the first byte on; here it may still be refused as a problem
    return EventSourceResponse(
        _lines(parts, claims, kind, items),
        ping=PING_SECONDS,
        send_timeout=SEND_SECONDS,
        headers={"X-Accel-Buffering": "no", "Cache-Control": "no-store"},
    )


async def _lines(
    parts: Parts, claims: Claims, kind: str, items: AsyncGenerator[list[Item]]
) -> AsyncIterator[bytes]:
    sent = parts.measures.stream_events.labels(kind)
    with _counted(parts, kind):
        yield b"retry: %d\r\n\r\n" % RETRY_MS
        try:
            async with aclosing(items):
                async for some in items:
                    if some:
                        yield b"".join([await _line(parts, claims, kind, item) for item in some])
                        sent.inc(len(some))
        except MovedLogError:
            return  # the client comes back, and its cursor is of another log


async def _line(parts: Parts, claims: Claims, kind: str, item: Item) -> bytes:
    match item:
        case Told():
            return _event(item.name, item.view, item.id)
        case ProgressReported():
            return _event("progress", progress_document(item))
        case Snapshot(tasks):
            shown = await task_views(parts, claims, tasks)
            ended = all(Status(task["status"]).ended for task in tasks)
            # It has no id to come back with: an ended task would be told again and again.
            stay_away = b"retry: %d\r\n" % RETRY_ENDED_MS if ended and kind == "task" else b""
            return stay_away + _event("snapshot", {"tasks": shown})


def _event(name: str, document: dict[str, Any], id_: str = "") -> bytes:
    head = f"id: {id_}\r\nevent: {name}\r\n" if id_ else f"event: {name}\r\n"
    data = orjson.dumps(document, option=orjson.OPT_UTC_Z)
    return head.encode() + b"data: " + data + b"\r\n\r\n"


def event_document(item: Told) -> dict[str, Any]:
    """A stored event with its id, as the long poll tells it."""
    return {"id": item.id, **item.view}


def progress_document(report: ProgressReported) -> dict[str, Any]:
    """What lies between milestones."""
    eta = report.eta_seconds
    return {
        "task_id": report.task_id,
        "token": report.token,
        "percent": report.percent,
        "phase": report.phase,
        "eta_seconds": eta if eta is None or math.isfinite(eta) else None,
        "at": report.at,
    }
