"""A caller's materials as they stand: whose, what is stored of them, what the decider says."""

import asyncio
import re
import time
from datetime import UTC, datetime
from typing import Final

from api.auth import Claims
from api.parts import Parts
from api.problems import Door, at_the_door, refusal, refused
from api.reads import Row
from api.uploads import Upload
from schema.commands import AdoptMaterial, CompleteMaterial, RegisterMaterial
from schema.ids import TASK_ID_LENGTH, MaterialId, shard_of
from schema.refusals import Refusal
from schema.replies import Accepted, Refused
from schema.routes import route
from schema.wires.objects import ObjectMissingError, StoredPart

_DECLARED_SECONDS: Final = 1.0
_DECLARED_POLL_SECONDS: Final = 0.02
_ID: Final = re.compile(rf"[0-9a-z]{{{TASK_ID_LENGTH - 6}}}[0-9]{{6}}")


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


async def heard_of(
    parts: Parts, claims: Claims, material_id: MaterialId, seq: int = 0
) -> Row | None:
    """The row that the read model is about to have, from this event on; None: not in time."""
    until = time.monotonic() + _DECLARED_SECONDS
    while True:
        row = await own_material(parts, claims, material_id)
        if (row is not None and row["seq"] >= seq) or time.monotonic() >= until:
            return row
        await asyncio.sleep(_DECLARED_POLL_SECONDS)


async def needed(parts: Parts, claims: Claims, material_id: MaterialId) -> Row:
    """The caller's material, announced a moment ago or before; raises Problem (404)."""
    row = await heard_of(parts, claims, material_id)
    if row is None:
        raise refusal(Refusal.MATERIAL_UNKNOWN)
    return row


def upload_of(claims: Claims, row: Row) -> Upload:
    """The upload of a row whose parts may come in; raises Problem (409)."""
    if row["status"] != "REGISTERED":
        raise at_the_door(Door.UPLOAD_OVER, members={"material_status": row["status"]})
    if not row["upload_id"]:  # of an older release: announced again it gets one
        raise at_the_door(Door.UPLOAD_LOST)
    return Upload(
        claims.user_id,
        claims.tenant_id,
        row["material_id"],
        row["upload_id"],
        row["size"],
        row["part_bytes"],
    )


async def upload_with(parts: Parts, claims: Claims, material_id: str, number: int) -> Upload:
    """An upload that has this part; raises Problem (404, 409)."""
    row = await needed(parts, claims, own_material_id(claims, material_id))
    upload = upload_of(claims, row)
    if number > upload.parts_count:
        raise at_the_door(Door.PART_UNKNOWN)
    return upload


async def stored_parts(parts: Parts, upload: Upload) -> list[StoredPart]:
    """The parts that are there; raises Problem (409) when the store knows nothing of it."""
    try:
        return await parts.uploads.stored(upload)
    except ObjectMissingError:
        if await parts.uploads.is_joined(upload):  # completed before, its verdict got lost
            whole = range(1, upload.parts_count + 1)
            return [StoredPart(number, upload.part_size(number), "") for number in whole]
        raise at_the_door(Door.UPLOAD_LOST) from None


def missing_parts(upload: Upload, stored: list[StoredPart]) -> list[int]:
    """Numbers of the parts that are not among those."""
    there = {part.number for part in stored}
    return [number for number in range(1, upload.parts_count + 1) if number not in there]


async def ask(
    parts: Parts, command: RegisterMaterial | CompleteMaterial | AdoptMaterial
) -> Accepted | None:
    """The decider's word, or None when it is on its way; raises Problem."""
    place = route(command, parts.asker.partitions)
    parts.asker.check(place)
    reply = await parts.asker.ask(command, place)
    if isinstance(reply, Refused):
        raise refused(reply, datetime.now(UTC), unknown=Refusal.MATERIAL_UNKNOWN)
    return reply
