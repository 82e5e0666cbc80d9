"""Materials as old as a test says, and what sweeps ask for because of it."""

from datetime import timedelta
from typing import Any, Self

from schema.codec import MATERIAL_COMMANDS
from schema.routes import MaterialBound
from schema.topics import Topic
from schema.wires.log import LogReader, Place
from tests.projections.conftest import Ground
from tests.support import material_words as w


class Asked:
    """The material commands that come into the log from here on; it is shared by the tests."""

    def __init__(self, ground: Ground) -> None:
        topic = Topic.MATERIAL_COMMANDS.value
        self._places = [Place(topic, number) for number in range(ground.kafka.partitions)]
        self._reader = LogReader(ground.kafka, self._places)

    async def __aenter__(self) -> Self:
        await self._reader.start()
        await self._reader.seek_to_end()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._reader.stop()

    async def all(self) -> list[MaterialBound]:
        """Those that came since they were asked for last."""
        ends = await self._reader.ends()
        found: list[Any] = []
        while any(self._reader.positions[place] < end for place, end in ends.items()):
            for batch in await self._reader.read():
                found += [MATERIAL_COMMANDS.decode(one.value or b"") for one in batch.records]
        return [one for one in found if isinstance(one, MaterialBound)]


async def caught_up(db: Any) -> None:  # noqa: ANN401 - a connection
    await db.execute(
        "INSERT INTO projection_log (cluster_id, epoch, caught_up_at) VALUES ('c', 'e', now())"
    )


async def put(db: Any, name: str, **fields: Any) -> None:  # noqa: ANN401 - a connection, a row
    """A material, as old as its fields say; the clock is the database's."""
    row = {"status": "REGISTERED", "tries": 0, "active": timedelta(), "assembling": timedelta()}
    row |= {"used": timedelta(), "size": 1, "part_bytes": 0, "upload_id": "", **fields}
    await db.execute(
        "INSERT INTO materials (material_id, user_id, tenant_id, content_type, size, sha256, "
        "status, seq, created_at, updated_at, tries, active_at, assembling_at, used_at, "
        "part_bytes, upload_id) VALUES ($1, $2, 'acme', 'video/mp4', $8, 'd', $3, 1, now(), now(), "
        "$4, now() - $5::interval, now() - $6::interval, now() - $7::interval, $9, $10)",
        f"{name}000007",
        w.USER,
        row["status"],
        row["tries"],
        row["active"],
        row["assembling"],
        row["used"],
        row["size"],
        row["part_bytes"],
        row["upload_id"],
    )
