"""Uploads as they stand in the store: which parts are there, addresses for the rest, pieces.

A file is sent in parts straight to the store, by addresses that are good for one part of one
length. What is there is asked of the store and kept nowhere else: whoever was interrupted asks, and
sends what is missing.

A part that a bad line does not carry whole may be sent in pieces, objects of their own, of which
the part is then made here: a store takes no parts as small as that.
"""

import asyncio
import contextlib
import time
from collections import OrderedDict
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from hashlib import blake2b
from typing import Final, NamedTuple
from uuid import uuid4

from api.asking import Asker
from api.problems import Door, Problem, at_the_door
from schema.commands import TouchUpload
from schema.ids import MaterialId, TenantId, UserId, command_id_of
from schema.objects import pieces_key, upload_key
from schema.routes import route
from schema.wires.objects import (
    PARTS_MAX,
    ObjectMissingError,
    ObjectStore,
    ObjectStoreUnavailableError,
    StoredPart,
)

PART_BYTES_MIN: Final = 5 << 20
PIECES: Final = 20
"""Of one part."""
_MEBIBYTE: Final = 1 << 20
_JOINS_MAX: Final = 2
"""Parts that are made of pieces at once: each is held in memory."""
_JOIN_SECONDS: Final = 30
"""For one, with its wait for the others: a store that is slow must not let callers pile up here."""
_TOUCH_SECONDS: Final = 60
_TOUCHED_MAX: Final = 50_000


def part_bytes_of(size: int) -> int:
    """How long the parts of a file are: 5 MiB, or as long as the number of parts makes it."""
    smallest = -(-size // PARTS_MAX)
    return max(PART_BYTES_MIN, -(-smallest // _MEBIBYTE) * _MEBIBYTE)


def _digest(*parts: str) -> str:
    return blake2b("\x1f".join(parts).encode(), digest_size=16).hexdigest()


class Piece(NamedTuple):
    """A piece of a part: where it begins in the part, and its length."""

    offset: int
    size: int


class Upload(NamedTuple):
    """One upload: all that is needed to find its parts."""

    user_id: UserId
    tenant_id: TenantId
    material_id: MaterialId
    upload_id: str
    size: int
    part_bytes: int

    @property
    def key(self) -> str:
        """What the parts are joined to."""
        return upload_key(self.user_id, self.material_id)

    @property
    def parts_count(self) -> int:
        return -(-self.size // self.part_bytes)

    @property
    def piece_bytes(self) -> int:
        return -(-self.part_bytes // PIECES)

    def part_size(self, number: int) -> int:
        """Of a part that it has."""
        return min(self.part_bytes, self.size - (number - 1) * self.part_bytes)

    def pieces(self, number: int) -> list[Piece]:
        """What a part is cut into."""
        size = self.part_size(number)
        return [
            Piece(offset, min(self.piece_bytes, size - offset))
            for offset in range(0, size, self.piece_bytes)
        ]

    def piece_key(self, number: int, offset: int | None) -> str:
        return pieces_key(self.user_id, self.material_id, self.upload_id, number, offset)


class Address(NamedTuple):
    """Where one part or piece is to be sent."""

    at: int
    """Number of the part, or offset of the piece."""
    size: int
    url: str


class Uploads:
    """What callers' uploads need of the store and of the log."""

    def __init__(self, objects: ObjectStore, asker: Asker, *, address_seconds: int) -> None:
        self._objects = objects
        self._asker = asker
        self._address_seconds = address_seconds
        self._touched: OrderedDict[MaterialId, float] = OrderedDict()
        self._joining = asyncio.Semaphore(_JOINS_MAX)

    def until(self) -> datetime:
        """How long addresses that are made now are good."""
        return datetime.now(UTC) + timedelta(seconds=self._address_seconds)

    async def stored(self, upload: Upload) -> list[StoredPart]:
        """The parts that are there as they shall be; raises ObjectMissingError (no such upload)."""
        return [
            part
            for part in await self._objects.parts(upload.key, upload.upload_id)
            if part.number <= upload.parts_count and part.size == upload.part_size(part.number)
        ]

    async def is_joined(self, upload: Upload) -> bool:
        """Whether its parts are one object already: somebody completed it before."""
        return await self._objects.head(upload.key) is not None

    async def whole(self, upload: Upload) -> str:
        """A digest of what is there, where that is all of it, in parts or joined; else empty."""
        try:
            stored = await self.stored(upload)
        except ObjectMissingError:
            joined = await self._objects.head(upload.key)
            if joined is None or joined.size != upload.size:
                return ""
            return _digest(upload.upload_id, joined.etag)
        if len(stored) < upload.parts_count:
            return ""
        return _digest(upload.upload_id, *(part.etag for part in stored))

    async def addresses(self, upload: Upload, numbers: Sequence[int]) -> list[Address]:
        """Where these parts are to be sent."""
        return [
            Address(
                number,
                upload.part_size(number),
                await self._objects.presigned_part(
                    upload.key,
                    upload.upload_id,
                    number,
                    size=upload.part_size(number),
                    seconds=self._address_seconds,
                ),
            )
            for number in numbers
        ]

    async def touch(self, upload: Upload) -> None:
        """Tell that the upload goes on, at most once a minute: tasks that wait for it wait on.

        A hint: one that gets lost is followed by another.
        """
        now, last = time.monotonic(), self._touched.get(upload.material_id)
        if last is not None and now - last < _TOUCH_SECONDS:
            return
        command = TouchUpload(
            command_id=command_id_of("touch", upload.material_id, uuid4().hex),
            material_id=upload.material_id,
            user_id=upload.user_id,
            tenant_id=upload.tenant_id,
        )
        with contextlib.suppress(Problem):
            await self._asker.tell(command, route(command, self._asker.partitions))
            self._touched[upload.material_id] = now
            self._touched.move_to_end(upload.material_id)
            while len(self._touched) > _TOUCHED_MAX:
                self._touched.popitem(last=False)

    # --- pieces ----------------------------------------------------------------------------------

    async def missing_pieces(self, upload: Upload, number: int) -> list[Address]:
        """Where the pieces of a part that are not there are to be sent."""
        there = await self._objects.sizes(upload.piece_key(number, None))
        return [
            Address(
                piece.offset,
                piece.size,
                await self._objects.presigned_put(
                    upload.piece_key(number, piece.offset),
                    content_type="application/octet-stream",
                    size=piece.size,
                    seconds=self._address_seconds,
                ),
            )
            for piece in upload.pieces(number)
            if there.get(upload.piece_key(number, piece.offset)) != piece.size
        ]

    async def join(self, upload: Upload, number: int) -> StoredPart:
        """Make a part of its pieces; asked again after a failure, it goes on.

        Raises Problem (409), ObjectMissingError (no such upload), ObjectStoreUnavailableError.
        """
        try:
            async with asyncio.timeout(_JOIN_SECONDS):
                return await self._join(upload, number)
        except TimeoutError as error:
            raise ObjectStoreUnavailableError(f"a part took over {_JOIN_SECONDS} s") from error

    async def _join(self, upload: Upload, number: int) -> StoredPart:
        keys = [upload.piece_key(number, piece.offset) for piece in upload.pieces(number)]
        async with self._joining:
            try:
                content = b"".join([await self._objects.get(key) for key in keys])
            except ObjectMissingError:
                content = b""
            if len(content) != upload.part_size(number):
                return await self._joined_before(upload, number)
            part = await self._objects.put_part(upload.key, upload.upload_id, number, content)
        for key in keys:
            await self._objects.delete(key)
        return part

    async def _joined_before(self, upload: Upload, number: int) -> StoredPart:
        """The part, where it is there without pieces; raises Problem (409)."""
        for part in await self.stored(upload):
            if part.number == number:
                return part
        raise at_the_door(Door.PIECES_MISSING)
