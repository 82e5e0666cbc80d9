"""What read models keep only for a while: refusals a day, events and attempts of tasks seven.

How a pool flowed is kept for an hour.

Ages are counted in log time (the newest record applied), never by a clock of ours. Nothing is
deleted while the log is still being folded: its partitions are read at different paces, so what
looks old by the one may be what another one goes on from.
"""

import asyncio
import logging
from pathlib import Path
from typing import Final

import asyncpg

from projections.folding import Db
from projections.projector import CONFUSED
from schema.wires.telemetry import facts

_SQL: Final = (Path(__file__).parent / "sql" / "cleaning.sql").read_text().split("\n-- ;;\n")
_IS_DUE, *_DELETES = _SQL
_TABLES: Final = ("refusals", "task_events", "task_attempts", "pool_flow", "pool_use")
PAGE: Final = 5_000
EVERY_SECONDS: Final = 60
_log = logging.getLogger(__name__)


async def clean(db: Db) -> dict[str, int]:
    """Delete what is too old, page by page; how many rows of each table went."""
    gone: dict[str, int] = {}
    for table, statement in zip(_TABLES, _DELETES, strict=True):
        gone[table] = 0
        while True:
            done = await db.execute(statement, PAGE)
            count = int(done.rpartition(" ")[2])
            gone[table] += count
            if count < PAGE:
                break
    return gone


async def is_due(db: Db) -> bool:
    """Whether the projector keeps up with the log, so that what looks old is old."""
    return bool(await db.fetchval(_IS_DUE))


async def run(dsn: str) -> None:
    """Clean once a minute, for ever, on a connection of its own."""
    while True:
        await asyncio.sleep(EVERY_SECONDS)
        try:
            db: Db = await asyncpg.connect(dsn, timeout=10, command_timeout=60)
            try:
                gone = await clean(db) if await is_due(db) else {}
            finally:
                await db.close(timeout=5)
        except (OSError, TimeoutError, asyncpg.PostgresError, *CONFUSED) as error:
            _log.warning("not cleaned", extra=facts(error=repr(error)))
        else:
            if any(gone.values()):
                _log.info("cleaned", extra=facts(**gone))
