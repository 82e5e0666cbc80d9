"""Announcing a file: the upload that stands, what is known of its content, what is to be sent."""

from typing import Any, Final, NamedTuple

import msgspec

from api import contracts
from api.auth import Claims
from api.owned_materials import ask, heard_of, missing_parts, stored_parts, upload_of
from api.parts import Parts
from api.problems import Door, Problem, at_the_door, refusal
from api.proofs import Proof
from api.reads import Row
from api.uploads import Address, Upload, part_bytes_of
from schema.commands import MediaFacts, RegisterMaterial
from schema.ids import MaterialId, UserId, command_id_of
from schema.objects import content_owner, upload_key
from schema.policy import TierPolicy
from schema.refusals import Refusal
from schema.replies import Accepted
from schema.wires.objects import ObjectMissingError
from schema.words import MediaKind

PLAN_PARTS_MAX: Final = 100
"""Addresses in one answer, unless more are asked for."""
_KINDS: Final = {
    "video": MediaKind.VIDEO,
    "image": MediaKind.PICTURE,
    "audio": MediaKind.AUDIO,
}


def check_tier(tier: TierPolicy | None, body: contracts.MaterialRequest) -> None:
    """Refuse what the tier takes in no case, before it is sent; raises Problem (403, 413)."""
    if tier is None:
        raise refusal(Refusal.TIER_UNKNOWN)
    if body.size > tier.input_bytes_max:
        raise at_the_door(
            Door.MATERIAL_TOO_LARGE,
            f"Your tier takes files of {tier.input_bytes_max} bytes at most.",
        )
    if body.seconds is not None and body.seconds > tier.input_seconds_max:
        raise at_the_door(
            Door.MATERIAL_TOO_LONG, f"Your tier takes {tier.input_seconds_max} seconds at most."
        )


async def opened(
    parts: Parts,
    claims: Claims,
    material_id: MaterialId,
    body: contracts.MaterialRequest,
    row: Row | None,
) -> tuple[str, Upload | None]:
    """The upload that stands, begun now or before, or the status of what needs none."""
    instead_of = ""
    if row is not None and row["status"] == "REGISTERED":
        if row["upload_id"]:
            upload = upload_of(claims, row)
            if await _is_there(parts, upload):
                return "REGISTERED", upload
        instead_of = row["upload_id"]
    upload = Upload(
        claims.user_id,
        claims.tenant_id,
        material_id,
        await parts.objects.create_upload(
            upload_key(claims.user_id, material_id), content_type=body.content_type
        ),
        body.size,
        part_bytes_of(body.size),
    )
    reply: Accepted | None = None
    try:
        reply = await _register(parts, claims, upload, body, row, instead_of)
    finally:
        if reply is None or reply.upload_id != upload.upload_id:
            await _given_up(parts, upload, in_doubt=reply is None)
    if reply is None:
        return "pending", None
    # What follows is asked of the read model: it shall know of this.
    row = await heard_of(parts, claims, material_id, reply.seq)
    if reply.status != "REGISTERED":
        return reply.status, None
    if reply.upload_id == upload.upload_id:
        return reply.status, upload
    if row is None or row["seq"] < reply.seq:
        raise at_the_door(Door.READ_MODEL_AWAY)
    return row["status"], upload_of(claims, row) if row["status"] == "REGISTERED" else None


async def _is_there(parts: Parts, upload: Upload) -> bool:
    try:
        await stored_parts(parts, upload)
    except Problem:
        return False
    return True


async def _given_up(parts: Parts, upload: Upload, *, in_doubt: bool) -> None:
    """Forget an upload that did not become the material's.

    In doubt it may have: then it stays, and what nobody needs is swept by a rule of the bucket.
    """
    if not in_doubt:
        await parts.objects.abort_upload(upload.key, upload.upload_id)


async def _register(
    parts: Parts,
    claims: Claims,
    upload: Upload,
    body: contracts.MaterialRequest,
    row: Row | None,
    instead_of: str,
) -> Accepted | None:
    await parts.keys.prepare(claims.user_id)
    command = RegisterMaterial(
        # One that was refused may be registered anew: that is another command.
        command_id=command_id_of(
            "register", upload.material_id, str(row["seq"] if row else 0), instead_of
        ),
        material_id=upload.material_id,
        user_id=claims.user_id,
        tenant_id=claims.tenant_id,
        content_type=body.content_type,
        size=body.size,
        sha256=body.sha256,
        private=parts.keys.seal(claims.user_id, {"name": body.name}),
        part_bytes=upload.part_bytes,
        seconds_max=body.seconds or 0,
        upload_id=upload.upload_id,
        instead_of=instead_of,
        after=row["seq"] if row else 0,
        reply_to=parts.asker.reply_partition,
    )
    return await ask(parts, command)


class Content(NamedTuple):
    """What is stored already."""

    key: str
    size: int
    facts: MediaFacts

    def is_declared_as(self, content_type: str) -> bool:
        """Whether the prober would take it under this type; it judges what is sent anyway."""
        declared = _KINDS.get(content_type.partition("/")[0])
        moves = self.facts.animated and declared is MediaKind.VIDEO
        return declared in {None, self.facts.kind} or moves


async def known_content(
    parts: Parts, claims: Claims, sha256: str, size: int, content_type: str
) -> Content | None:
    """What is stored already of this content, in the caller's tenant and nowhere else."""
    owner = content_owner(claims.tenant_id, claims.user_id)
    row = await parts.reads.content(owner, sha256)
    if row is None or row["size"] != size:
        return None
    found = Content(row["content_key"], size, msgspec.convert(row["facts"], MediaFacts))
    return found if found.is_declared_as(content_type) else None


async def holds(parts: Parts, user_id: UserId, content: Content, told: str) -> bool:
    """Whether somebody who says this has proved that he holds the content."""
    try:
        proof = await parts.proofs.check(parts.objects, content.key, user_id, content.size, told)
    except ObjectMissingError:
        return False  # it is known and gone: it has to be sent again
    parts.measures.proofs.labels(proof.value).inc()
    return proof is Proof.RIGHT


async def plan_of(parts: Parts, upload: Upload) -> dict[str, Any]:
    """What is to be sent, with the first addresses; raises Problem (409)."""
    stored = await stored_parts(parts, upload)
    addresses = await parts.uploads.addresses(
        upload, missing_parts(upload, stored)[:PLAN_PARTS_MAX]
    )
    return {
        "part_bytes": upload.part_bytes,
        "parts_count": upload.parts_count,
        "stored_bytes": sum(part.size for part in stored),
        "parts": shown_addresses(addresses),
        "until": parts.uploads.until(),
    }


def shown_addresses(addresses: list[Address]) -> list[dict[str, Any]]:
    return [{"number": one.at, "url": one.url, "size": one.size} for one in addresses]
