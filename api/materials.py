"""Materials: announce a file, send its parts, prove that it is known, say that all is there, read.

Nobody's word counts but that of who read it: what was sent is joined, read and probed by the
prober, which tells the decider. Callers get addresses of parts only, so once these are joined
nobody can write to them any more.
"""

from typing import Annotated, Any, Final, Literal

from fastapi import APIRouter, Path, Query, Response
from pydantic import BaseModel, ConfigDict, Field

from api import contracts, views
from api.announcing import (
    PLAN_PARTS_MAX,
    check_tier,
    holds,
    known_content,
    opened,
    plan_of,
    shown_addresses,
)
from api.auth import Claims
from api.completing import check_parts, completed, verdict
from api.owned_materials import (
    ask,
    missing_parts,
    needed,
    own_material,
    own_material_id,
    stored_parts,
    upload_of,
    upload_with,
)
from api.parts import Parts
from api.problems import Door, at_the_door, refusal
from api.reads import Row
from api.tasks import make_cursor, read_cursor
from api.uploads import Address, Upload
from api.wiring import Caller, NoBody, PartsHere, answer, problems
from schema.commands import AdoptMaterial
from schema.ids import MaterialId, command_id_of, material_id_of
from schema.refusals import Refusal
from schema.wires.objects import ObjectMissingError, ObjectStoreUnavailableError, StoredPart

PLAN_LIMIT: Final = 1_000
_STORED: Final = frozenset({"READY", "COLD"})
_TAKEN: Final = _STORED | {"ASSEMBLING"}

MaterialPath = Annotated[str, Path(description="The material's id.")]
NumberPath = Annotated[int, Path(ge=1, le=10_000, description="Number of the part, from 1.")]
router = APIRouter(tags=["materials"], responses=problems(400, 401, 404, 503))


class ListQuery(BaseModel):
    """What of one's materials to list."""

    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True)

    status: list[Literal["REGISTERED", "ASSEMBLING", "READY", "COLD", "REFUSED", "ABORTED"]] = (
        Field(default=[], max_length=6, description="Only these; may be repeated.")
    )
    limit: int = Field(default=20, ge=1, le=100)
    cursor: str | None = Field(
        default=None, max_length=200, description="`next_cursor` of the last page."
    )


class PartsQuery(BaseModel):
    """What to tell of an upload."""

    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True)

    missing: bool = Field(default=True, description="Addresses for what is missing.")
    limit: int = Field(default=PLAN_PARTS_MAX, ge=1, le=PLAN_LIMIT, description="So many at most.")


@router.post(
    "/v1/materials", response_model=contracts.RegisteredView, responses=problems(403, 409, 413)
)
async def register_material(
    parts: PartsHere, claims: Caller, body: contracts.MaterialRequest
) -> Response:
    """Announce a file. The same content under the same name is the same material.

    Announced again it goes on where it was: `upload` tells what is missing.
    """
    check_tier(parts.standing.policy().tiers.get(claims.tier), body)
    material_id = material_id_of(claims.user_id, body.sha256, body.name)
    parts.standing.check_fresh()  # it knows of what the decider has forgotten
    row = await own_material(parts, claims, material_id)
    if row is not None and row["status"] in _TAKEN:
        return _registered(material_id, row["status"])
    try:
        status, upload = await opened(parts, claims, material_id, body, row)
        if upload is None:
            return _registered(material_id, status)
        content = await known_content(parts, claims, body.sha256, body.size, body.content_type)
        if content is not None and parts.proofs.may_try(claims.user_id, content.key):
            asked = parts.proofs.challenge(claims.user_id, content.key, body.size)
            return _registered(material_id, status, challenge=asked._asdict())
        return _registered(material_id, status, upload=await plan_of(parts, upload))
    except ObjectStoreUnavailableError as error:
        raise at_the_door(Door.STORE_AWAY) from error


@router.post(
    "/v1/materials/{material_id}/proof",
    response_model=contracts.RegisteredView,
    responses=problems(409),
)
async def prove_material(
    parts: PartsHere, claims: Caller, material_id: MaterialPath, body: contracts.ProofRequest
) -> Response:
    """Answer the challenge. Right: READY, nothing is sent. Wrong or late: upload it, as planned.

    After a few wrong answers there is no challenge about that content for an hour.
    """
    row = await needed(parts, claims, own_material_id(claims, material_id))
    own = MaterialId(row["material_id"])
    if row["status"] in _TAKEN:
        return _registered(own, row["status"])
    upload = upload_of(claims, row)
    try:
        content = await known_content(
            parts, claims, row["sha256"], row["size"], row["content_type"]
        )
        if content is None or not await holds(parts, claims.user_id, content, body.sha256):
            return _registered(own, row["status"], upload=await plan_of(parts, upload))
    except ObjectStoreUnavailableError as error:
        raise at_the_door(Door.STORE_AWAY) from error
    command = AdoptMaterial(
        command_id=command_id_of("adopt", own, str(row["seq"])),
        material_id=own,
        user_id=claims.user_id,
        tenant_id=claims.tenant_id,
        size=row["size"],
        sha256=row["sha256"],
        content_key=content.key,
        facts=content.facts,
        reply_to=parts.asker.reply_partition,
    )
    reply = await ask(parts, command)
    return _registered(own, reply.status if reply else "pending")


@router.get(
    "/v1/materials/{material_id}/parts",
    response_model=contracts.PartsView,
    responses=problems(409),
)
async def get_parts(
    parts: PartsHere,
    claims: Caller,
    material_id: MaterialPath,
    query: Annotated[PartsQuery, Query()],
) -> Response:
    """Which parts are stored, and addresses for the ones that are not.

    To ask is a sign that the upload goes on: tasks that wait for it wait on.
    """
    row = await needed(parts, claims, own_material_id(claims, material_id))
    if row["status"] in _TAKEN:
        return answer(_parts_view(row, None, [], [], []))
    upload = upload_of(claims, row)
    try:
        stored = await stored_parts(parts, upload)
        await parts.uploads.touch(upload)
        missing = missing_parts(upload, stored)
        asked = missing[: query.limit] if query.missing else []
        addresses = await parts.uploads.addresses(upload, asked)
    except ObjectStoreUnavailableError as error:
        raise at_the_door(Door.STORE_AWAY) from error
    until = parts.uploads.until()
    return answer(_parts_view(row, upload, stored, missing, addresses) | {"until": until})


@router.get(
    "/v1/materials/{material_id}/parts/{number}/pieces",
    response_model=contracts.PiecesView,
    responses=problems(409),
)
async def get_pieces(
    parts: PartsHere, claims: Caller, material_id: MaterialPath, number: NumberPath
) -> Response:
    """A part in pieces, for a line that breaks before a whole part is through.

    PUT each with `Content-Type: application/octet-stream`, then `POST .../join`.
    """
    upload = await upload_with(parts, claims, material_id, number)
    try:
        missing = await parts.uploads.missing_pieces(upload, number)
        await parts.uploads.touch(upload)
    except ObjectStoreUnavailableError as error:
        raise at_the_door(Door.STORE_AWAY) from error
    size = upload.part_size(number)
    return answer(
        {
            "number": number,
            "size": size,
            "piece_bytes": upload.piece_bytes,
            "stored_bytes": size - sum(piece.size for piece in missing),
            "missing": [
                {"offset": piece.at, "size": piece.size, "url": piece.url} for piece in missing
            ],
            "until": parts.uploads.until(),
        }
    )


@router.post(
    "/v1/materials/{material_id}/parts/{number}/join",
    response_model=contracts.StoredPartView,
    responses=problems(409),
)
async def join_pieces(
    parts: PartsHere,
    claims: Caller,
    material_id: MaterialPath,
    number: NumberPath,
    _body: NoBody = None,
) -> Response:
    """Make a part of its pieces. Joined before, it is told again."""
    upload = await upload_with(parts, claims, material_id, number)
    try:
        part = await parts.uploads.join(upload, number)
    except ObjectMissingError:
        raise at_the_door(Door.UPLOAD_LOST) from None
    except ObjectStoreUnavailableError as error:
        raise at_the_door(Door.STORE_AWAY) from error
    return answer(part._asdict())


@router.post(
    "/v1/materials/{material_id}/complete",
    response_model=contracts.MaterialView,
    responses=problems(409, 422),
)
async def complete_material(
    parts: PartsHere, claims: Caller, material_id: MaterialPath, _body: NoBody = None
) -> Response:
    """Say that all parts are there: they are joined, read and looked at.

    200 once it is READY; 202 while it is looked at: ask again, or GET the material. Told twice is
    told once. 409 `parts_missing` names what is missing; 422 says why it cannot be used.
    """
    row = await needed(parts, claims, own_material_id(claims, material_id))
    if row["status"] == "REGISTERED":
        row = await completed(parts, claims, row)
    elif row["status"] == "ASSEMBLING":
        row = await verdict(parts, claims, row, row["seq"])
    return await _told(parts, claims, row)


@router.get("/v1/materials", response_model=contracts.MaterialList)
async def list_materials(
    parts: PartsHere, claims: Caller, query: Annotated[ListQuery, Query()]
) -> Response:
    """Your materials, newest first."""
    rows = await parts.reads.list_materials(
        claims.user_id,
        claims.tenant_id,
        statuses=list(query.status) or None,
        before=read_cursor(query.cursor) if query.cursor else None,
        limit=query.limit + 1,
    )
    more = len(rows) > query.limit
    rows = rows[: query.limit]
    cursor = None
    if more:
        last = rows[-1]
        cursor = make_cursor({"created_at": last["created_at"], "task_id": last["material_id"]})
    shown = [_view(parts, claims, row) for row in rows]
    return answer({"materials": shown, "next_cursor": cursor})


@router.get("/v1/materials/{material_id}", response_model=contracts.MaterialView)
async def get_material(parts: PartsHere, claims: Caller, material_id: MaterialPath) -> Response:
    """A material: how far it is, what it is, or why it cannot be used and what to do about it."""
    row = await own_material(parts, claims, own_material_id(claims, material_id))
    if row is None:
        raise refusal(Refusal.MATERIAL_UNKNOWN)
    return answer(_view(parts, claims, row))


def _registered(
    material_id: MaterialId,
    status: str,
    *,
    upload: dict[str, Any] | None = None,
    challenge: dict[str, Any] | None = None,
) -> Response:
    return answer(
        {
            "material_id": material_id,
            "status": status,
            "upload": upload,
            "challenge": challenge,
        }
    )


def _parts_view(
    row: Row,
    upload: Upload | None,
    stored: list[StoredPart],
    missing: list[int],
    addresses: list[Address],
) -> dict[str, Any]:
    return {
        "material_id": row["material_id"],
        "status": row["status"],
        "upload_id": upload.upload_id if upload else None,
        "part_bytes": row["part_bytes"],
        "parts_count": upload.parts_count if upload else 0,
        "stored": [part._asdict() for part in stored],
        "missing": shown_addresses(addresses),
        "missing_count": len(missing),
        "until": None,
    }


async def _told(parts: Parts, claims: Claims, row: Row) -> Response:
    """The answer to a completion; raises Problem."""
    view = _view(parts, claims, row)
    match row["status"]:
        case "READY" | "COLD":
            return answer(view)
        case "REFUSED" | "ABORTED":
            aborted = row["status"] == "ABORTED"
            found = refusal(Refusal.MATERIAL_ABORTED if aborted else Refusal.MATERIAL_REFUSED)
            told = ("reason", "detail", "advice")
            found.members |= {name: view[name] for name in told if view[name]}
            raise found
        case "REGISTERED":  # opened again: the prober found that parts are missing
            await check_parts(parts, claims, row)
            return answer({**view, "status": "pending"}, 202, {"retry-after": "1"})
        case _:
            return answer(view, 202, {"retry-after": "1"})


def _view(parts: Parts, claims: Claims, row: Row) -> dict[str, Any]:
    return views.material_view(row, views.opened(parts.keys, claims.user_id, row["private"]))
