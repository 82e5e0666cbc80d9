"""What the store has of uploads that nobody tells of: parts come in past us, by addresses.

Whoever has his addresses need not ask the api again before all is sent, and may be killed after his
last part. So the store is asked, rarely, for the parts of uploads that nothing is heard of: has
something come, their tasks wait on (`TouchUpload`); is all there, it is completed
(`CompleteMaterial`). What it is, is for the prober to say: here only numbers and sizes count.

What was seen is remembered, and nothing is asked for twice because of the same parts: where the
prober finds that they are not what they seem, their caller has to send others, or to say so again.
"""

import asyncio
import logging
from collections.abc import Sequence
from hashlib import blake2b
from pathlib import Path
from typing import Any, Final, NamedTuple, Self

import asyncpg
from prometheus_client import CollectorRegistry, Counter

from projections.folding import Db
from projections.projector import CONFUSED
from projections.sweeps import is_due, named
from schema.codec import encode
from schema.commands import CompleteMaterial, TouchUpload
from schema.ids import MaterialId, UserId, command_id_of, completion_id_of
from schema.objects import upload_key
from schema.routes import route
from schema.settings import Kafka, Objects
from schema.wires.log import LogUnavailableError, LogWriter
from schema.wires.objects import (
    ObjectMissingError,
    ObjectStore,
    ObjectStoreUnavailableError,
    StoredPart,
)
from schema.wires.telemetry import facts, stop_quietly

_SQL: Final = (Path(__file__).parent / "sql" / "uploads_sweep.sql").read_text().split("\n-- ;;\n")
_SILENT, _SEEN, _FORGET = _SQL
PAGE: Final = 500
"""At most so many are looked at in one turn; who was looked at longest ago, first."""
AT_ONCE: Final = 8
EVERY_SECONDS: Final = 30
_JOINED: Final = "joined"
_AWAY: Final = (
    LogUnavailableError,
    ObjectStoreUnavailableError,
    OSError,
    TimeoutError,
    asyncpg.PostgresError,
)
_log = logging.getLogger(__name__)

Row = Any
"""A record of asyncpg."""


class Seen(NamedTuple):
    """What the store has of an upload."""

    parts: str
    """A digest of the parts; empty: none. Another one means that something came in."""
    whole: bool
    """Whether all parts are there, as long as they shall be."""


NOTHING: Final = Seen("", whole=False)


def seen(stored: Sequence[StoredPart], size: int, part_bytes: int) -> Seen:
    """What these parts are of a file of so many bytes."""
    if not stored:
        return NOTHING
    named = ",".join(f"{part.number}:{part.size}:{part.etag}" for part in stored)
    digest = blake2b(named.encode(), digest_size=16).hexdigest()
    found = {part.number: part.size for part in stored}
    count = -(-size // part_bytes)
    wanted = dict.fromkeys(range(1, count), part_bytes)
    wanted[count] = size - (count - 1) * part_bytes
    return Seen(digest, whole=all(found.get(number) == wanted[number] for number in wanted))


class UploadSweep:
    """Looks twice a minute whether it is time to look at any."""

    def __init__(
        self, dsn: str, objects: Objects, kafka: Kafka, registry: CollectorRegistry
    ) -> None:
        self._dsn = dsn
        self._store = ObjectStore(objects)
        self._partitions = kafka.partitions
        self._writer = LogWriter(kafka, client_id="upload-sweep")
        self._open = False
        self._done = Counter(
            "cutlog_uploads_swept",
            "Uploads that nobody told of: looked at, gone on (touched), sent whole (completed).",
            ["what"],
            registry=registry,
        )

    async def run(self) -> None:
        """For ever; what is away then is looked at the next time."""
        async with self:
            while True:
                await asyncio.sleep(EVERY_SECONDS)
                try:
                    await self.turn()
                except (*_AWAY, *CONFUSED) as error:
                    _log.warning("uploads are not swept", extra=facts(error=repr(error)))
                except Exception:  # noqa: BLE001 - the entry point of the sweep
                    _log.exception("the sweep of uploads met what it cannot work on")

    async def __aenter__(self) -> Self:
        await self._store.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await stop_quietly(self._writer.stop)
        await stop_quietly(self._store.stop)

    async def turn(self) -> int:
        """Look at those whose time has come, if the tables can be trusted; how many."""
        db: Db = await asyncpg.connect(self._dsn, timeout=10, command_timeout=60)
        try:
            if not await is_due(db):
                return 0
            await db.execute(_FORGET, PAGE)
            rows = await db.fetch(_SILENT, PAGE)
            if rows and not self._open:
                await self._writer.start()
                self._open = True
            for start in range(0, len(rows), AT_ONCE):
                page = rows[start : start + AT_ONCE]
                found = await asyncio.gather(*(self._look(row) for row in page))
                if not any(found):
                    raise ObjectStoreUnavailableError("none of a page of uploads is looked at")
                for row, one in zip(page, found, strict=True):
                    # Where the store said nothing of this one alone, its turn comes later again.
                    parts = row["parts"] if one is None else one.parts
                    await db.execute(_SEEN, row["material_id"], row["upload_id"], parts)
        finally:
            await db.close(timeout=5)
        return len(rows)

    async def _look(self, row: Row) -> Seen | None:
        """What is there, told to the log if it is something new; None: the store did not say."""
        try:
            found = await self._found(row)
        except ObjectStoreUnavailableError as error:
            _log.warning(
                "an upload is not looked at",
                extra=facts(material_id=row["material_id"], error=str(error)),
            )
            return None
        self._done.labels("looked").inc()
        if found.parts in ("", row["parts"]):
            return found
        command = _completed(row) if found.whole else _touched(row, found)
        await self._writer.append(route(command, self._partitions), encode(command))
        self._done.labels("completed" if found.whole else "touched").inc()
        return found

    async def _found(self, row: Row) -> Seen:
        key = upload_key(UserId(row["user_id"]), MaterialId(row["material_id"]))
        try:
            parts = await self._store.parts(key, row["upload_id"])
        except ObjectMissingError:
            # Joined before, and then its verdict got lost; or it is really gone.
            joined = await self._store.head(key)
            return NOTHING if joined is None else Seen(_JOINED, whole=joined.size == row["size"])
        return seen(parts, row["size"], row["part_bytes"])


def _touched(row: Row, found: Seen) -> TouchUpload:
    return TouchUpload(
        command_id=command_id_of("touch", row["material_id"], found.parts),
        **named(row),
    )


def _completed(row: Row) -> CompleteMaterial:
    return CompleteMaterial(
        command_id=completion_id_of(row["material_id"], row["seq"]),
        **named(row),
    )
