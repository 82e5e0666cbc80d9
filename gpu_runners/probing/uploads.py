"""An upload in the store: its parts joined, its bytes fetched, its content kept once, it forgotten.

Every step may have been made before, by a process that died after it: then it is not made again.
"""

from pathlib import Path
from typing import NamedTuple

from gpu_runners.probing.verdicts import RefusedError
from schema.events import MaterialAssembling
from schema.ids import MaterialId, UserId
from schema.objects import content_key, pieces_of, upload_key
from schema.refusals import MaterialRefusal
from schema.wires.objects import (
    ObjectMissingError,
    ObjectStore,
    PartsRefusedError,
    StoredPart,
)

_NAMED_MAX = 20


class PartsMissingError(Exception):
    """Not all parts are there; the message names them."""


class Fetched(NamedTuple):
    size: int
    sha256: str


def missing_parts(parts: list[StoredPart], size: int, part_bytes: int) -> list[int]:
    """Numbers of the parts that are not there, or not as long as they should be."""
    count = max(1, -(-size // part_bytes))
    stored = {part.number: part.size for part in parts}
    last = size - (count - 1) * part_bytes
    return [
        number
        for number in range(1, count + 1)
        if stored.get(number) != (part_bytes if number < count else last)
    ]


class Uploads:
    """The store, as the prober needs it."""

    def __init__(self, store: ObjectStore, bytes_max: int) -> None:
        self._store = store
        self._bytes_max = bytes_max

    async def fetch(self, event: MaterialAssembling, path: Path) -> Fetched:
        """Join the parts and read the file to a local one.

        Raises PartsMissingError, RefusedError (of another size than declared, or too large), and
        ObjectStoreUnavailableError.
        """
        if event.size > self._bytes_max:
            raise RefusedError(
                MaterialRefusal.MATERIAL_TOO_LARGE,
                f"The file has {event.size} bytes; at most {self._bytes_max} are taken.",
            )
        key = upload_key(event.user_id, event.material_id)
        if event.upload_id:
            await self._join(key, event)
        joined = await self._store.head(key)
        if joined is None:
            raise PartsMissingError("the upload is not in the store")
        if joined.size != event.size:
            raise RefusedError(
                MaterialRefusal.SIZE_MISMATCH,
                f"{joined.size} bytes came; {event.size} were declared.",
            )
        try:
            size, sha256 = await self._store.get_file(key, path)
        except ObjectMissingError as error:
            raise PartsMissingError("the upload is not in the store any more") from error
        return Fetched(size, sha256)

    async def _join(self, key: str, event: MaterialAssembling) -> None:
        """Make one object of the parts; an upload that is gone was joined or forgotten before."""
        try:
            parts = await self._store.parts(key, event.upload_id)
        except ObjectMissingError:
            return
        part_bytes = event.part_bytes or event.size or 1
        missing = missing_parts(parts, event.size, part_bytes)
        if missing:
            more = f" and {len(missing) - _NAMED_MAX} more" if len(missing) > _NAMED_MAX else ""
            named = ", ".join(str(number) for number in missing[:_NAMED_MAX])
            raise PartsMissingError(f"parts {named}{more}")
        count = max(1, -(-event.size // part_bytes))
        try:
            await self._store.complete_upload(key, event.upload_id, parts[:count])
        except ObjectMissingError:
            return
        except PartsRefusedError as error:
            raise PartsMissingError("the store refuses the parts as they are") from error

    async def keep(self, event: MaterialAssembling, path: Path) -> tuple[str, bool]:
        """Store the content where all who have it find it; its key, and whether it was there.

        Raises ObjectMissingError, ObjectStoreUnavailableError.
        """
        key = content_key(event.tenant_id, event.user_id, event.sha256)
        kept = await self._store.head(key)
        if kept is not None and kept.size == event.size:
            return key, True
        if event.upload_id:
            source = upload_key(event.user_id, event.material_id)
            await self._store.copy(
                source, key, content_type=event.content_type, sha256=event.sha256
            )
        else:  # of an older release, whose callers can still write there: what was read is stored
            await self._store.put_file(key, path, content_type=event.content_type)
        return key, False

    async def forget(self, user_id: UserId, material_id: MaterialId, upload_id: str) -> None:
        """What was uploaded is of no use any more: its object, its parts, pieces of parts.

        Raises ObjectStoreUnavailableError; done again, it goes on where it was.
        """
        key = upload_key(user_id, material_id)
        if upload_id:
            await self._store.abort_upload(key, upload_id)
            # Those that were never joined: their caller gave up, or sent the part whole after all.
            for piece in await self._store.sizes(pieces_of(user_id, material_id, upload_id)):
                await self._store.delete(piece)
        await self._store.delete(key)
