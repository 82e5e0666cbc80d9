"""Rows and events as callers read them: what is theirs, without what is ours."""

import logging
from typing import Any, assert_never

import msgspec
import orjson

from api.advice import advice_on
from api.problems import Problem, refusal
from api.reads import Row
from schema import events as e
from schema.commands import MediaFacts, ResultFile
from schema.ids import UserId
from schema.refusals import Refusal
from schema.replies import Remaining
from schema.wires.keys import KeyStore, SealBrokenError
from schema.wires.telemetry import facts
from schema.words import Status

JSON_OPTIONS = orjson.OPT_UTC_Z
_log = logging.getLogger(__name__)


def opened(keys: KeyStore, user_id: UserId, sealed: bytes | None) -> dict[str, str]:
    """Private fields of a user; empty when there are none or he was erased."""
    if not sealed:
        return {}
    try:
        return keys.open(user_id, bytes(sealed)) or {}
    except SealBrokenError:
        _log.exception("private fields cannot be opened")
        return {}


def task_view(row: Row, private: dict[str, str], progress: float | None = None) -> dict[str, Any]:
    """A task. `percent` is the further of milestone and progress while it runs."""
    status = row["status"]
    percent: float | None = None
    if status == Status.RUNNING:
        percent = max(row["percent"] or 0, progress or 0.0)
    elif status == Status.SUCCEEDED:
        percent = 100
    return {
        "task_id": row["task_id"],
        "status": status,
        "seq": row["seq"],
        "scene": row["scene"],
        "lane": row["lane"],
        "pool_id": row["pool_id"],
        "title": private.get("title"),
        "parameters": row["parameters"],
        "materials": row["material_ids"],
        "percent": percent,
        "storing": row["storing"],
        "token": row["token"],
        "deadline_seconds": row["deadline_seconds"],
        "lower_spec": row["lower_spec"],
        "card_ms": row["card_ms"],
        "card_measured": row["card_measured"],
        "retries": row["retries"],
        "reserved_micros": row["reserved_micros"],
        "charge_micros": row["charge_micros"],
        "failure": row["failure"],
        "last_failure": row["last_failure"],
        "message": row["message"],
        "cause": row["cause"],
        "reason": row["reason"],
        "facts": row["facts"],
        "publishes": row["publishes"],
        "published_by": row["published_by"],
        "result": (row["result_state"] or "hot") if status == Status.SUCCEEDED else None,
        "files": [
            {key: file[key] for key in ("name", "content_type", "size", "sha256")}
            for file in row["files"] or []
        ],
        "created_at": row["created_at"],
        "queued_at": row["queued_at"],
        "started_at": row["started_at"],
        "ended_at": row["ended_at"],
        "updated_at": row["updated_at"],
    }


def material_view(row: Row, private: dict[str, str]) -> dict[str, Any]:
    """A material."""
    stored, refused = row["facts"], row["reason"] or None
    return {
        "material_id": row["material_id"],
        "status": row["status"],
        "seq": row["seq"],
        "name": private.get("name"),
        "content_type": row["content_type"],
        "size": row["size"],
        "sha256": row["sha256"],
        "reason": refused,
        "detail": row["detail"] or None,
        "advice": advice_on(refused) if refused else None,
        "facts": msgspec.structs.asdict(msgspec.convert(stored, MediaFacts)) if stored else None,
        "created_at": row["created_at"],
        "updated_at": row["updated_at"],
    }


def refused_submission(row: Row) -> Problem:
    """The problem that a submission ended in, from its row in `refusals`."""
    try:
        reason = Refusal(row["reason"])
    except ValueError:  # written by a newer release
        _log.warning("refusal not known", extra=facts(reason=row["reason"]))
        reason = Refusal.INTERNAL
    stored = row["remaining"]
    remaining = None
    if stored is not None:
        remaining = msgspec.convert(stored, Remaining)
    return refusal(
        reason,
        now=row["at"],
        detail=row["detail"],
        remaining=remaining,
        resets_at=row["resets_at"],
    )


def status_after(event: e.TaskEvent) -> Status | None:
    """Where the task stands after this event; None: where it stood before."""
    match event:
        case e.TaskCreated() | e.TaskMaterialConfirmed() | e.TaskWaitExtended():
            return Status.CREATED
        case e.TaskQueued() | e.TaskMoved() | e.TaskRequeued() | e.TaskRetried():
            return Status.QUEUED
        case e.TaskStarted() | e.TaskProgressed() | e.TaskStoring():
            return Status.RUNNING
        case e.TaskSucceeded():
            return Status.SUCCEEDED
        case e.TaskFailed():
            return Status.FAILED
        case e.TaskCanceled():
            return Status.CANCELED
        case e.TaskExpired():
            return Status.EXPIRED
        case _:
            assert_never(event)


def event_name(event: e.TaskEvent) -> str:
    """The name of an event on a stream: its wire name, `task.started.v1`."""
    return str(event.__struct_config__.tag)


def event_view(event: e.TaskEvent) -> dict[str, Any]:
    """An event of a task."""
    return {
        "task_id": event.task_id,
        "seq": event.seq,
        "event": event_name(event),
        "status": status_after(event),
        "at": event.at,
        **_particulars(event),
    }


def _particulars(event: e.TaskEvent) -> dict[str, Any]:  # noqa: PLR0912 - one case an event
    """What an event says beyond its name."""
    match event:
        case e.TaskCreated():
            return {
                "scene": event.origin.scene,
                "lane": event.lane,
                "pool_id": event.pool_id,
                "reserved_micros": event.reserved_micros,
            }
        case e.TaskMaterialConfirmed() | e.TaskWaitExtended():
            return {"material_id": event.material_id}
        case e.TaskQueued():
            return {"lane": event.lane, "pool_id": event.pool_id}
        case e.TaskMoved():
            return {
                "lane": event.lane,
                "pool_id": event.pool_id,
                "lower_spec": event.lower_spec,
                "reason": event.reason,
            }
        case e.TaskStarted():
            return {"token": event.token, "pool_id": event.pool_id}
        case e.TaskProgressed():
            return {"token": event.token, "percent": event.percent}
        case e.TaskStoring():
            return {"token": event.token, "card_ms": event.card_ms}
        case e.TaskRequeued():
            return {
                "token": event.token,
                "loss": event.loss,
                "failure": event.failure,
                "message": event.message,
                "counted": event.counted,
                "delay_ms": event.delay_ms,
                "lower_spec": event.lower_spec,
                **_card(event),
                "saved_ms": event.saved_ms,
            }
        case e.TaskSucceeded():
            return {
                "token": event.token,
                "files": [_file(file) for file in event.files],
                "facts": event.facts,
                "card_ms": event.card_ms,
                "charge_micros": event.charge_micros,
            }
        case e.TaskFailed():
            return {
                "token": event.token,
                "failure": event.failure,
                "last_failure": event.last_failure,
                "message": event.message,
                **_card(event),
            }
        case e.TaskCanceled():
            return {
                "token": event.token,
                "cause": event.cause,
                "charge_micros": event.charge_micros,
                "reason": event.reason,
                **_card(event),
            }
        case e.TaskExpired():
            return {"token": event.token}
        case e.TaskRetried():
            return {"reserved_micros": event.reserved_micros}
        case _:
            assert_never(event)


def _card(event: e.TaskRequeued | e.TaskFailed | e.TaskCanceled) -> dict[str, Any]:
    """Card time of the attempt that the event ends; not measured: an estimate."""
    return {"card_ms": event.card_ms, "card_measured": event.card_measured}


def _file(file: ResultFile) -> dict[str, Any]:
    """A file of the result; where it is stored is ours."""
    return {
        "name": file.name,
        "content_type": file.content_type,
        "size": file.size,
        "sha256": file.sha256,
    }
