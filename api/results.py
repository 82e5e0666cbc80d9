"""Results: addresses to fetch them from, and publishing in full size."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import PurePosixPath
from typing import Any, Final

from fastapi import APIRouter, Request, Response

from api import contracts, views
from api.auth import Claims
from api.parts import Parts
from api.problems import Door, at_the_door, refusal, refused
from api.reads import KnownTask, Row
from api.submissions import publishing_id
from api.tasks import TaskPath, own_id, present_task, promised_seq
from api.wiring import Caller, NoBody, PartsHere, answer, problems
from schema.commands import PublishResult
from schema.ids import TaskId, command_id_of
from schema.refusals import Refusal
from schema.replies import Refused
from schema.routes import route
from schema.wires.objects import ObjectStoreUnavailableError
from schema.words import Status

RESULT_SECONDS: Final = 3_600
NAME_CHARACTERS_MAX: Final = 100
TRIES_MAX: Final = 8
"""How often the same result may be published anew, after one that came to nothing."""
_UNFIT: Final = frozenset('<>:"/\\|?*%')

router = APIRouter(tags=["results"], responses=problems(400, 401, 404, 503))


@router.get(
    "/v1/tasks/{task_id}/result", response_model=contracts.ResultView, responses=problems(409, 410)
)
async def get_result(
    parts: PartsHere, claims: Caller, task_id: TaskPath, request: Request
) -> Response:
    """Addresses to fetch the files of a SUCCEEDED task from, whole or by range, for an hour.

    A result is kept for 30 days; deleted or withheld it is answered 410, with the reason.
    """
    own = own_id(claims, task_id)
    row = await present_task(parts, claims, own, promised_seq(parts, request, own))
    check_there(row)
    private = views.opened(parts.keys, claims.user_id, row["private"])
    shown = await _result_view(parts, row, private.get("title") or "")
    parts.deliveries.count(row)
    return answer(shown)


@router.post(
    "/v1/tasks/{task_id}/publish",
    response_model=contracts.PublishView,
    responses=problems(403, 409, 410, 429),
)
async def publish(
    parts: PartsHere,
    claims: Caller,
    task_id: TaskPath,
    request: Request,
    _body: NoBody = None,
) -> Response:
    """Publish a result. A preview is made again in full size, by a task of its own, at its price.

    Asked again it is the same task, unless that has come to nothing. What is full size already is
    only marked.
    """
    own = own_id(claims, task_id)
    row = await present_task(parts, claims, own, promised_seq(parts, request, own))
    check_there(row)
    if is_full_size(row):
        await _mark_published(parts, claims, own)
        return answer({"task_id": own, "published_by": own, "submission": None})
    private = views.opened(parts.keys, claims.user_id, row["private"])
    by = await _next_task(parts, claims, own)
    document = full_size_of(row, private)
    submission = await parts.submissions.publish(claims, own, by, document)
    return answer({"task_id": own, "published_by": by, "submission": submission}, 202)


def check_there(row: Row) -> None:
    """Raises Problem: 409 without a result, 410 when it is withheld or deleted."""
    if row["status"] != Status.SUCCEEDED:
        raise at_the_door(Door.RESULT_NOT_READY, f"The task is {row['status']}.")
    match row["result_state"]:
        case "deleted":
            raise refusal(Refusal.RESULT_DELETED, detail=row["result_reason"])
        case "withheld":
            raise refusal(Refusal.RESULT_WITHHELD, detail=row["result_reason"])
        case _:
            return


# --- addresses ------------------------------------------------------------------------------------


async def _result_view(parts: Parts, row: Row, title: str) -> dict[str, Any]:
    until = datetime.now(UTC) + timedelta(seconds=RESULT_SECONDS)
    stored: Sequence[Mapping[str, Any]] = row["files"] or []
    names = download_names(title, [file["name"] for file in stored])
    files: list[dict[str, Any]] = []
    try:
        for file, name in zip(stored, names, strict=True):
            url = await parts.objects.presigned_get(
                file["object_key"], seconds=RESULT_SECONDS, filename=name
            )
            shown = {key: file[key] for key in ("name", "content_type", "size", "sha256")}
            files.append({**shown, "filename": name, "url": url, "url_until": until})
    except ObjectStoreUnavailableError as error:
        raise at_the_door(Door.STORE_AWAY) from error
    return {"task_id": row["task_id"], "files": files, "facts": row["facts"]}


def download_names(title: str, names: Sequence[str]) -> list[str]:
    """What each file is called where it is downloaded to: by the title, and none twice.

    The first file of a result is what was asked for; the others say what they are.
    """
    clean = _fit(title)
    if not clean:
        return list(names)
    found: list[str] = []
    for number, name in enumerate(names):
        path = PurePosixPath(name)
        found.append(f"{clean}{path.suffix}" if number == 0 else f"{clean} {path.name}")
    return found


def _fit(title: str) -> str:
    """The title without what no file system takes; empty: nothing of it is left."""
    kept = "".join(" " if one in _UNFIT or not one.isprintable() else one for one in title)
    return " ".join(kept.split())[:NAME_CHARACTERS_MAX].strip(" .")


# --- publishing -----------------------------------------------------------------------------------


def is_full_size(row: Row) -> bool:
    """Whether there is no larger one to be made of it."""
    parameters: Mapping[str, Any] = row["parameters"]
    return row["scene"] not in contracts.PREVIEWED or parameters.get("size") == contracts.FULL_SIZE


def full_size_of(row: Row, private: Mapping[str, str]) -> dict[str, Any]:
    """The same submission again, for its full size."""
    document: dict[str, Any] = {
        "scene": row["scene"],
        "materials": list(row["material_ids"]),
        "parameters": {**row["parameters"], "size": contracts.FULL_SIZE},
    }
    return document | {name: private[name] for name in ("title", "prompt") if name in private}


async def _next_task(parts: Parts, claims: Claims, task_id: TaskId) -> TaskId:
    """The task that publishes it: the first that has not come to nothing; raises Problem (409).

    That it publishes it is told to the result by the task itself, once it is accepted.
    """
    tries = [publishing_id(claims, task_id, number) for number in range(TRIES_MAX)]
    known = await parts.reads.known_tasks(tries)
    for one in tries:
        if not _came_to_nothing(known.get(one)):
            return one
    last = tries[-1]
    raise at_the_door(
        Door.PUBLISHED_IN_VAIN,
        f"The last of {TRIES_MAX} tasks is {known[last].status}.",
        members={"task_id": last},
    )


def _came_to_nothing(known: KnownTask | None) -> bool:
    return known is not None and known.status in {
        Status.FAILED,
        Status.CANCELED,
        Status.EXPIRED,
    }


async def _mark_published(parts: Parts, claims: Claims, task_id: TaskId) -> None:
    """Say so to the result, which is full size itself; raises Problem."""
    command = PublishResult(
        command_id=command_id_of("publish", task_id, task_id),
        task_id=task_id,
        user_id=claims.user_id,
        tenant_id=claims.tenant_id,
        by=task_id,
        reply_to=parts.asker.reply_partition,
    )
    place = route(command, parts.asker.partitions)
    parts.asker.check(place)
    reply = await parts.asker.ask(command, place)
    if isinstance(reply, Refused):
        raise refused(reply, datetime.now(UTC))
