"""Completing an upload: all parts are there, the decider is told, the verdict is waited for."""

import asyncio
import time
from typing import Final

from api.auth import Claims
from api.owned_materials import ask, missing_parts, own_material, stored_parts, upload_of
from api.parts import Parts
from api.problems import Door, Problem, at_the_door
from api.reads import Row
from schema.commands import CompleteMaterial
from schema.ids import MaterialId, completion_id_of
from schema.objects import upload_key
from schema.wires.objects import ObjectStoreUnavailableError

VERDICT_SECONDS: Final = 2.0
"""How long a completion waits for what the prober says."""
_VERDICT_POLL_SECONDS: Final = 0.05
_NAMED_MAX: Final = 1_000
"""Missing parts that are named, by number."""


async def completed(parts: Parts, claims: Claims, row: Row) -> Row:
    """Say so to the decider, and wait a little for the verdict; raises Problem (409, 503)."""
    await check_parts(parts, claims, row)
    material_id = MaterialId(row["material_id"])
    command = CompleteMaterial(
        command_id=completion_id_of(material_id, row["seq"]),
        material_id=material_id,
        user_id=claims.user_id,
        tenant_id=claims.tenant_id,
        reply_to=parts.asker.reply_partition,
    )
    reply = await ask(parts, command)
    if reply is None:
        return {**row, "status": "pending"}
    return await verdict(parts, claims, row, reply.seq)


async def check_parts(parts: Parts, claims: Claims, row: Row) -> None:
    """Refuse to complete what is not all there; raises Problem (409, 503)."""
    try:
        if not row["upload_id"]:  # of an older release: one piece, under the upload's own name
            whole = await parts.objects.head(upload_key(claims.user_id, row["material_id"]))
            if whole is None:
                raise at_the_door(Door.UPLOAD_LOST)
            return
        upload = upload_of(claims, row)
        missing = missing_parts(upload, await stored_parts(parts, upload))
    except ObjectStoreUnavailableError as error:
        raise at_the_door(Door.STORE_AWAY) from error
    if missing:
        raise _parts_missing(missing)


def _parts_missing(missing: list[int]) -> Problem:
    told = ", ".join(str(number) for number in missing[:10])
    more = f" and {len(missing) - 10} more" if len(missing) > 10 else ""  # noqa: PLR2004 - as above
    return at_the_door(
        Door.PARTS_MISSING,
        f"Missing: {told}{more}.",
        members={"missing": missing[:_NAMED_MAX], "missing_count": len(missing)},
    )


async def verdict(parts: Parts, claims: Claims, row: Row, seq: int) -> Row:
    """The row once it stands behind this event and is not looked at any more, or as it is then."""
    until = time.monotonic() + VERDICT_SECONDS
    while time.monotonic() < until:
        found = await own_material(parts, claims, row["material_id"])
        if found is not None and found["seq"] >= seq and found["status"] != "ASSEMBLING":
            return found
        await asyncio.sleep(_VERDICT_POLL_SECONDS)
    return {**row, "status": "ASSEMBLING"}
