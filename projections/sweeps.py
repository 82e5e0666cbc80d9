"""What the read models see left lying: uploads that nobody goes on with, or uses any more.

Only asked for here, by commands: whether it is so is the decider's to judge, in its own clock, so
asking twice, or too early, does nothing. Nothing is asked while the log is still being folded:
what looks old may be what the rest of the log goes on with.
"""

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, NamedTuple, TypedDict

import asyncpg

from projections.folding import Db
from projections.projector import CONFUSED
from schema.codec import encode
from schema.commands import AbandonMaterial, ChillMaterial
from schema.ids import MaterialId, TenantId, UserId, command_id_of
from schema.routes import Routed, route
from schema.settings import Kafka
from schema.wires.log import LogUnavailableError, LogWriter
from schema.wires.telemetry import facts, stop_quietly

_SQL: Final = (Path(__file__).parent / "sql" / "sweeps.sql").read_text().split("\n-- ;;\n")
_IS_DUE, _LYING, _UNUSED = _SQL
PAGE: Final = 500
"""At most so many of each at once: the others are found the next time."""
EVERY_SECONDS: Final = 30
_AWAY: Final = (LogUnavailableError, OSError, TimeoutError, asyncpg.PostgresError)
_log = logging.getLogger(__name__)

Row = Any
"""A record of asyncpg."""


class Sweep(NamedTuple):
    """Rows that are looked for, and what is asked of each."""

    name: str
    query: str
    ask: Callable[[Row], Routed]


class Named(TypedDict):
    """Which material a command is about, and whose."""

    material_id: MaterialId
    user_id: UserId
    tenant_id: TenantId


def named(row: Row) -> Named:
    """The material of a row."""
    return Named(
        material_id=MaterialId(row["material_id"]),
        user_id=UserId(row["user_id"]),
        tenant_id=TenantId(row["tenant_id"]),
    )


def _abandon(row: Row) -> AbandonMaterial:
    return AbandonMaterial(
        command_id=command_id_of("abandon", row["material_id"]),
        **named(row),
    )


def _chill(row: Row) -> ChillMaterial:
    return ChillMaterial(
        command_id=command_id_of("chill", row["material_id"]),
        **named(row),
    )


SWEEPS: Final = (
    Sweep("abandoned", _LYING, _abandon),
    Sweep("chilled", _UNUSED, _chill),
)


async def found(db: Db) -> dict[str, list[Routed]]:
    """What is to be asked for now, by the name of the sweep."""
    return {one.name: [one.ask(row) for row in await db.fetch(one.query, PAGE)] for one in SWEEPS}


async def is_due(db: Db) -> bool:
    """Whether the projector keeps up with the log."""
    return bool(await db.fetchval(_IS_DUE))


class Sweeper:
    """Asks, with a producer that is opened when there is something to ask for."""

    def __init__(self, dsn: str, kafka: Kafka) -> None:
        self._dsn = dsn
        self._partitions = kafka.partitions
        self._writer = LogWriter(kafka, client_id="sweeps")
        self._open = False

    async def run(self) -> None:
        """Twice a minute, for ever; what is away then is asked the next time."""
        try:
            while True:
                await asyncio.sleep(EVERY_SECONDS)
                try:
                    asked = await self.turn()
                except (*_AWAY, *CONFUSED) as error:
                    _log.warning("not swept", extra=facts(error=repr(error)))
                else:
                    if any(asked.values()):
                        _log.info("swept", extra=facts(**asked))
        finally:
            await stop_quietly(self._writer.stop)

    async def turn(self) -> dict[str, int]:
        """Ask for what is due, if the tables can be trusted; how many of each."""
        db: Db = await asyncpg.connect(self._dsn, timeout=10, command_timeout=60)
        try:
            due = await found(db) if await is_due(db) else {}
        finally:
            await db.close(timeout=5)
        if any(due.values()) and not self._open:
            await self._writer.start()
            self._open = True
        for commands in due.values():
            await asyncio.gather(*(self._ask(command) for command in commands))
        return {name: len(commands) for name, commands in due.items()}

    async def _ask(self, command: Routed) -> None:
        await self._writer.append(route(command, self._partitions), encode(command))
