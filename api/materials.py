"""Materials: register one (one presigned PUT, or nothing to send), say that it is stored, read one.

Nobody's word counts but the store's: on completion the object is read and its size and sha256 go
to the decider, which holds them against what was declared.

Nor may the object change after that: what is read is a copy out of the caller's reach, and that
copy becomes the material.
"""

import asyncio
import contextlib
import re
import time
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any
from uuid import uuid4

from fastapi import APIRouter, Path, Response

from api import contracts, views
from api.auth import Claims
from api.parts import Parts
from api.problems import Door, Problem, at_the_door, refusal, refused
from api.reads import Row
from api.wiring import Caller, NoBody, PartsHere, answer, problems
from schema.commands import CompleteMaterial, RegisterMaterial
from schema.ids import TASK_ID_LENGTH, MaterialId, command_id_of, material_id_of, shard_of
from schema.objects import checked_key, material_key, upload_key
from schema.refusals import Refusal
from schema.replies import Accepted, Refused
from schema.routes import route
from schema.wires.objects import ObjectMissingError, ObjectStoreUnavailableError, StoredObject

READS_MAX = 2
"""Objects that are read for their digest at once: each takes a core."""
_READY = "READY"
_DECLARED_SECONDS = 1.0
_DECLARED_POLL_SECONDS = 0.02
_ID = re.compile(rf"[0-9a-z]{{{TASK_ID_LENGTH - 6}}}[0-9]{{6}}")
_reading = asyncio.Semaphore(READS_MAX)

MaterialPath = Annotated[str, Path(description="The material's id.")]
router = APIRouter(tags=["materials"], responses=problems(400, 401, 404, 503))


@router.post(
    "/v1/materials", response_model=contracts.RegisteredView, responses=problems(403, 409, 413)
)
async def register_material(
    parts: PartsHere, claims: Caller, body: contracts.MaterialRequest
) -> Response:
    """Announce a file. The same content under the same name is the same material."""
    tier = parts.standing.policy().tiers.get(claims.tier)
    if tier is None:
        raise refusal(Refusal.TIER_UNKNOWN)
    if body.size > tier.input_bytes_max:
        raise at_the_door(
            Door.MATERIAL_TOO_LARGE,
            f"Your tier takes files of {tier.input_bytes_max} bytes at most.",
        )
    material_id = material_id_of(claims.user_id, body.sha256, body.name)
    row = await own_material(parts, claims, material_id)
    if row is not None and row["status"] == _READY:
        return answer({"material_id": material_id, "status": _READY, "upload": None})
    status = await _register(parts, claims, material_id, body, row)
    upload = None if status == _READY else await _upload(parts, claims, material_id, body)
    return answer({"material_id": material_id, "status": status, "upload": upload})


@router.post(
    "/v1/materials/{material_id}/complete",
    response_model=contracts.MaterialView,
    responses=problems(409, 422),
)
async def complete_material(
    parts: PartsHere, claims: Caller, material_id: MaterialPath, _body: NoBody = None
) -> Response:
    """Say that the file is stored; it is read and held against what was announced."""
    own = own_material_id(claims, material_id)
    row = await own_material(parts, claims, own)
    if row is not None and row["status"] == _READY:
        return answer(_view(parts, claims, row))
    stored = await _stored(parts, claims, own, row)
    command = CompleteMaterial(
        command_id=command_id_of(
            "complete", own, str(row["seq"] if row else 0), str(stored.size), stored.sha256
        ),
        material_id=own,
        user_id=claims.user_id,
        tenant_id=claims.tenant_id,
        size=stored.size,
        sha256=stored.sha256,
        reply_to=parts.asker.reply_partition,
    )
    reply = await _ask(parts, command)
    if reply:
        await _forget(parts, upload_key(claims.user_id, own))
    known = _view(parts, claims, row) if row is not None else {}
    status = reply.status if reply else "pending"
    seq = reply.seq if reply else 0
    told = {**known, "material_id": own, "status": status, "seq": seq}
    told |= {"size": stored.size, "sha256": stored.sha256}
    return answer(told, 200 if reply else 202)


@router.get("/v1/materials/{material_id}", response_model=contracts.MaterialView)
async def get_material(parts: PartsHere, claims: Caller, material_id: MaterialPath) -> Response:
    """A material."""
    row = await own_material(parts, claims, own_material_id(claims, material_id))
    if row is None:
        raise refusal(Refusal.MATERIAL_UNKNOWN)
    return answer(_view(parts, claims, row))


def own_material_id(claims: Claims, text: str) -> MaterialId:
    """A material id that may be this caller's; raises Problem (404)."""
    if not _ID.fullmatch(text) or shard_of(text) != shard_of(claims.user_id):
        raise refusal(Refusal.MATERIAL_UNKNOWN)
    return MaterialId(text)


async def own_material(parts: Parts, claims: Claims, material_id: MaterialId) -> Row | None:
    """The caller's material as the read model has it."""
    row = await parts.reads.material(material_id)
    if row is None or (row["user_id"], row["tenant_id"]) != (claims.user_id, claims.tenant_id):
        return None
    return row


def _view(parts: Parts, claims: Claims, row: Row) -> dict[str, Any]:
    return views.material_view(row, views.opened(parts.keys, claims.user_id, row["private"]))


async def _register(
    parts: Parts,
    claims: Claims,
    material_id: MaterialId,
    body: contracts.MaterialRequest,
    row: Row | None,
) -> str:
    """Register, and say how it stands then."""
    await parts.keys.prepare(claims.user_id)
    command = RegisterMaterial(
        # One that was refused may be registered anew: that is another command.
        command_id=command_id_of("register", material_id, str(row["seq"] if row else 0)),
        material_id=material_id,
        user_id=claims.user_id,
        tenant_id=claims.tenant_id,
        content_type=body.content_type,
        size=body.size,
        sha256=body.sha256,
        private=parts.keys.seal(claims.user_id, {"name": body.name}),
        reply_to=parts.asker.reply_partition,
    )
    reply = await _ask(parts, command)
    return reply.status if reply else "pending"


async def _upload(
    parts: Parts, claims: Claims, material_id: MaterialId, body: contracts.MaterialRequest
) -> dict[str, Any]:
    seconds = parts.settings.api.material_put_seconds
    until = datetime.now(UTC) + timedelta(seconds=seconds)
    try:
        url = await parts.objects.presigned_put(
            upload_key(claims.user_id, material_id),
            content_type=body.content_type,
            size=body.size,
            seconds=seconds,
        )
    except ObjectStoreUnavailableError as error:
        raise at_the_door(Door.STORE_AWAY) from error
    headers = {"Content-Type": body.content_type, "Content-Length": str(body.size)}
    return {"method": "PUT", "url": url, "headers": headers, "until": until}


async def _stored(
    parts: Parts, claims: Claims, material_id: MaterialId, row: Row | None
) -> StoredObject:
    """What the store has, with its true digest; raises Problem (404, 409, 503).

    An upload is a material once its declared bytes stand under the material's own name. Whatever
    breaks off here, the upload is still there and the next one to complete it does it again.
    """
    kept_key = material_key(claims.user_id, material_id)
    try:
        # In this order: whoever deletes the upload has made the material before.
        upload = await parts.objects.head(upload_key(claims.user_id, material_id))
        kept = await parts.objects.head(kept_key)
        if kept is not None:
            return kept
        if upload is None:
            raise await _not_stored(parts, claims, material_id, row)
        declared = row or await _declared(parts, claims, material_id)
        if declared["size"] != upload.size:
            return upload._replace(sha256="")  # refused in any case: no need to read it
        try:
            return await _checked(parts, claims, material_id, upload, declared)
        except ObjectMissingError:  # somebody else completed it meanwhile
            kept = await parts.objects.head(kept_key)
            if kept is None:
                raise await _not_stored(parts, claims, material_id, row) from None
            return kept
    except ObjectStoreUnavailableError as error:
        raise at_the_door(Door.STORE_AWAY) from error


async def _declared(parts: Parts, claims: Claims, material_id: MaterialId) -> Row:
    """The row of an upload; raises Problem (503) when the read model does not hear of it."""
    row = await _heard_of(parts, claims, material_id)
    if row is None:
        raise at_the_door(Door.READ_MODEL_AWAY)
    return row


async def _heard_of(parts: Parts, claims: Claims, material_id: MaterialId) -> Row | None:
    """The row of a registration that the read model is about to hear of; None: there is none."""
    until = time.monotonic() + _DECLARED_SECONDS
    while time.monotonic() < until:
        row = await own_material(parts, claims, material_id)
        if row is not None:
            return row
        await asyncio.sleep(_DECLARED_POLL_SECONDS)
    return None


async def _checked(
    parts: Parts, claims: Claims, material_id: MaterialId, upload: StoredObject, declared: Row
) -> StoredObject:
    """Read a copy that no caller can write to, and keep that copy if it is what was declared.

    The upload itself may be exchanged while it is read and after: its address is good for a while.
    """
    objects, kind = parts.objects, declared["content_type"]
    checked_name = checked_key(claims.user_id, material_id, uuid4().hex)
    try:
        await objects.copy(upload.key, checked_name, content_type=kind)
        async with _reading:
            size, sha256 = await objects.digest(checked_name)
        if sha256 != declared["sha256"]:
            return upload._replace(size=size, sha256=sha256)
        kept_key = material_key(claims.user_id, material_id)
        return await objects.copy(checked_name, kept_key, content_type=kind, sha256=sha256)
    finally:
        await _forget(parts, checked_name)


async def _forget(parts: Parts, key: str) -> None:
    """Delete what nobody needs; what stays is litter that a rule of the bucket sweeps."""
    with contextlib.suppress(ObjectMissingError, ObjectStoreUnavailableError):
        await parts.objects.delete(key)


async def _not_stored(
    parts: Parts, claims: Claims, material_id: MaterialId, row: Row | None
) -> Problem:
    """Nothing is stored under it, or there is no such material: told apart by its registration."""
    known = row or await _heard_of(parts, claims, material_id)
    return refusal(Refusal.MATERIAL_UNKNOWN) if known is None else at_the_door(Door.OBJECT_MISSING)


async def _ask(parts: Parts, command: RegisterMaterial | CompleteMaterial) -> Accepted | None:
    """The decider's word, or None when it is on its way; raises Problem."""
    place = route(command, parts.asker.partitions)
    parts.asker.check(place)
    reply = await parts.asker.ask(command, place)
    if isinstance(reply, Refused):
        raise refused(reply, datetime.now(UTC), unknown=Refusal.MATERIAL_UNKNOWN)
    return reply
