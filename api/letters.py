"""Dead letters for operators: what stands there, and doing it again or throwing it away.

A letter is closed by a command to the processor that wrote it, never here: the record is applied,
the commands behind it go on, and who did it and why is told, in one transaction there. A task that
has no try left is retried for its user, who pays for it anew; then its letter is closed. What would
begin a task that is there by now, because its user has sent it again, is closed and never applied.
"""

import re
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Annotated, Any, Literal, cast

import orjson
from fastapi import APIRouter, Query, Response

from api import contracts
from api.auth import Claims
from api.parts import Parts
from api.problems import Door, at_the_door, refused
from api.reads import Row
from api.wiring import Operator, PartsHere, answer, problems
from schema.codec import CODECS, UnknownVersionError, UnreadableMessageError
from schema.commands import Command, CreateTask, ReleaseKey, RequeueTask, RetryTask, SubmitTask
from schema.ids import AccountId, TaskId, TenantId, UserId, command_id_of
from schema.objects import letter_key
from schema.refusals import Refusal
from schema.replies import Refused
from schema.routes import Route, route
from schema.topics import Topic
from schema.words import Scene, Status

LETTERS_MAX = 100
PARKED_MAX = 1_000
_PLACE = re.compile(r"[a-z0-9.-]+/\d+/\d+")
"""The id of a command's letter: where its record stands."""
_DEPTH_MAX = 64
_SPENT = "retries_spent"
_OPEN = "open"
_STORABLE = r"^[^\x00]*$"
"""No store holds a NUL, so nothing can be found by one."""

Of = Annotated[
    str | None,
    Query(
        min_length=1,
        max_length=512,
        pattern=_STORABLE,
        description="A letter's, task's or trace's id.",
    ),
]
router = APIRouter(
    prefix="/v1/operator/dead-letters",
    tags=["operators"],
    responses=problems(400, 401, 403, 404, 413, 422, 503),
)


@router.get("", response_model=contracts.LettersView)
async def list_letters(
    parts: PartsHere,
    _claims: Operator,
    of: Of = None,
    state: Literal["open", "all"] = "open",
    limit: Annotated[int, Query(ge=1, le=LETTERS_MAX)] = 50,
) -> Response:
    """Letters, newest first, and the keys behind which commands wait."""
    rows = await parts.reads.letters(of, None if state == "all" else _OPEN, limit)
    parked = await parts.reads.parked_keys(PARKED_MAX)
    return answer(
        {
            "letters": [_view(row) for row in rows],
            "parked_keys": [
                {
                    "partition": row["log_partition"],
                    "key": row["key"],
                    "letter_id": row["letter_id"],
                    "cause": row["cause"],
                    "since": row["since"],
                }
                for row in parked
            ],
        }
    )


@router.get("/show", response_model=contracts.WholeLettersView)
async def show_letters(
    parts: PartsHere,
    _claims: Operator,
    of: Annotated[str, Query(min_length=1, max_length=512, pattern=_STORABLE)],
) -> Response:
    """Letters with what was asked, in the order in which they came, the closed ones too."""
    rows = await parts.reads.letters(of, None, LETTERS_MAX, whole=True)
    if not rows:
        raise at_the_door(Door.LETTER_UNKNOWN)
    return answer({"letters": [_whole_view(row) for row in rows]})


@router.post("/redrive", response_model=contracts.ClosedLettersView, status_code=202)
async def redrive_letters(
    parts: PartsHere, claims: Operator, body: contracts.LetterRequest
) -> Response:
    """Do it again: each once, in its order, before what waits behind it."""
    rows = await _open_letters(parts, body.of)
    return await _close(parts, claims, rows, body.why, discard=False)


@router.post("/discard", response_model=contracts.ClosedLettersView, status_code=202)
async def discard_letters(
    parts: PartsHere, claims: Operator, body: contracts.LetterRequest
) -> Response:
    """Never do it; what waits behind it goes on."""
    rows = await _open_letters(parts, body.of)
    return await _close(parts, claims, rows, body.why, discard=True)


async def _open_letters(parts: Parts, of: str) -> list[Row]:
    rows = await parts.reads.letters(of, _OPEN, LETTERS_MAX, whole=True)
    if not rows:
        raise at_the_door(Door.LETTER_UNKNOWN)
    return rows


async def _close(
    parts: Parts, claims: Claims, rows: Sequence[Row], why: str, *, discard: bool
) -> Response:
    """One after the other: the log keeps their order. The first refusal ends it."""
    told: list[dict[str, Any]] = []
    for row in rows:
        named = {"letter_id": row["letter_id"], "task_id": row["task_id"]}
        if row["held_by"] not in (None, row["letter_id"]) and not discard:
            told.append({**named, "status": "behind", "behind": row["held_by"]})
            continue
        if _is_spent(row) and not discard and not await _retried(parts, row):
            told.append({**named, "status": "pending", "behind": None})
            continue
        begins = _begins_task(row)
        if begins and not await _never_began(parts, row):
            # Its user has sent it again since, and that was done: once more is one too many.
            closing = why if discard else f"not redriven, its task is there: {row['status']}; {why}"
            await _tell(parts, claims, row, closing, only_close=True)
            told.append({**named, "status": "pending" if discard else "known", "behind": None})
            continue
        vouched_at = datetime.now(UTC) if begins else None
        await _tell(parts, claims, row, why, discard=discard, unknown_at=vouched_at)
        told.append({**named, "status": "pending", "behind": None})
    return answer({"letters": told}, 202)


async def _tell(
    parts: Parts,
    claims: Claims,
    row: Row,
    why: str,
    *,
    discard: bool = False,
    only_close: bool = False,
    unknown_at: datetime | None = None,
) -> None:
    """Close a letter. It releases its key if nobody has since, and brings its record along.

    `only_close`: it is thrown away, and nothing follows from what it asked for.
    """
    holds = row["held_by"] == row["letter_id"]
    discard = discard or only_close
    bare = only_close or _is_spent(row) or _is_timer(row) or (discard and not _holds_quota(row))
    record = None if bare else row["value"] or b""
    command = ReleaseKey(
        command_id=command_id_of("discard" if discard else "redrive", row["letter_id"]),
        key=row["quarantined_key"] if holds else "",
        who=claims.user_id,
        why=why,
        letter_id=row["letter_id"],
        redrive=None if discard else record,
        discard=discard,
        discarded=record if discard else None,
        unknown_at=unknown_at,
    )
    key = row["quarantined_key"] or row["letter_id"]
    await parts.asker.tell(command, Route(Topic(row["topic"]), row["source_partition"], key))


def _begins_task(row: Row) -> bool:
    """Whether redriven it would begin a task that its user may have sent again since.

    What holds its key has kept everybody out of it: nobody can have begun that task.
    """
    if _is_spent(row) or _is_timer(row):
        return False
    match _command_of(row):
        case SubmitTask():
            return True
        case CreateTask():
            return bool(row["held_by"] != row["letter_id"])
        case _:
            return False


def _holds_quota(row: Row) -> bool:
    """Whether something is reserved for what it asks for, which goes back when it is thrown away.

    Anything else is thrown away without a look at it, however long it is.
    """
    return isinstance(_command_of(row), CreateTask | RequeueTask)


def _command_of(row: Row) -> Command | None:
    """None: nobody can read it."""
    try:
        found: Command = CODECS[Topic(row["topic"])].decode(row["value"] or b"")
    except (UnreadableMessageError, UnknownVersionError):
        return None
    return found


async def _never_began(parts: Parts, row: Row) -> bool:
    """Whether the read model can tell, and tells, that there is no such task.

    How far it is behind is asked after the row was read: emptied in between, it could not say.
    Raises Problem (503) when it cannot tell.
    """
    if row["status"] is not None:
        return False
    await parts.standing.refresh()
    parts.standing.check_fresh()
    return True


async def _retried(parts: Parts, row: Row) -> bool:
    """Retry a spent task for its user; False: the answer is on its way, so its letter stays open.

    A task that somebody retried since needs nothing but that its letter is closed. The command is
    that of the user's own retry of this failure: both are one. Raises Problem when it is refused.
    """
    if row["status"] is None:  # it is being folded anew: nobody knows how the task stands
        raise at_the_door(Door.READ_MODEL_AWAY, "It does not hold this task now.")
    if row["status"] != Status.FAILED:
        return True
    command = RetryTask(
        command_id=command_id_of("retry", row["task_id"], str(row["seq"])),
        task_id=TaskId(row["task_id"]),
        user_id=UserId(row["user_id"]),
        tenant_id=TenantId(row["tenant_id"]),
        account_id=AccountId(row["account_id"]),
        scene=Scene(row["scene"]),
        tier=row["tier"],
        materials=len(row["material_ids"]),
        reply_to=parts.asker.reply_partition,
    )
    place = route(command, parts.asker.partitions)
    parts.asker.check(place)
    reply = await parts.asker.ask(command, place)
    if isinstance(reply, Refused):
        if reply.reason is Refusal.RESERVATION_RESOLVED:
            return True  # this failure was retried before
        raise refused(reply, datetime.now(UTC))
    return reply is not None


def _is_spent(row: Row) -> bool:
    return str(row["cause"]).startswith(_SPENT)


def _is_timer(row: Row) -> bool:
    """It was no record but a deadline: released, it fires again by itself."""
    return not _is_spent(row) and not _PLACE.fullmatch(row["letter_id"])


def _view(row: Row) -> dict[str, Any]:
    kind = "spent" if _is_spent(row) else "timer" if _is_timer(row) else "command"
    return {
        "letter_id": row["letter_id"],
        "kind": kind,
        "state": row["state"],
        "topic": row["topic"],
        "partition": row["source_partition"],
        "offset": row["source_offset"],
        "cause": row["cause"],
        "quarantined_key": row["quarantined_key"],
        "holds_key": row["held_by"] == row["letter_id"],
        "task_id": row["task_id"],
        "task_status": row["status"],
        "trace_id": row["trace_id"],
        "failure": row["failure"],
        "at": row["at"],
        "who": row["who"],
        "why": row["why"],
        "closed_at": row["closed_at"],
    }


def _whole_view(row: Row) -> dict[str, Any]:
    value: bytes = row["value"] or b""
    try:
        read = orjson.loads(value)
    except orjson.JSONDecodeError:
        read = None
    return {
        **_view(row),
        "record": _without_sealed(read) if isinstance(read, dict) else None,
        "record_bytes": len(value),
        "archived_as": None
        if _is_spent(row)
        else letter_key(row["at"].date().isoformat(), row["letter_id"]),
    }


def _without_sealed(found: Any, depth: int = _DEPTH_MAX) -> Any:  # noqa: ANN401 - JSON
    """Nobody but its user is shown what is sealed for him, not even sealed.

    What is nested deeper than any message of ours is left out: no answer could hold it.
    """
    if depth == 0 and isinstance(found, dict | list):
        return "(nested too deep)"
    if isinstance(found, dict):
        fields = cast("dict[str, Any]", found)
        return {
            name: _without_sealed(one, depth - 1)
            for name, one in fields.items()
            if name != "private"
        }
    if isinstance(found, list):
        listed: list[Any] = found
        return [_without_sealed(one, depth - 1) for one in listed]
    return found
