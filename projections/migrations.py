"""The tables, made by numbered files that are never edited once they are applied.

`describe` prints the catalog as text; `schema.sql` beside this file is that text after all
migrations, and a test holds one against the other.
"""

import hashlib
import re
from pathlib import Path
from typing import Final, NamedTuple

from projections.folding import Db

FOLDER: Final = Path(__file__).parent / "migrations"
SCHEMA: Final = Path(__file__).parent / "schema.sql"
_CATALOG: Final = (Path(__file__).parent / "sql" / "catalog.sql").read_text()
_LOCK: Final = 0x6375746C6F67  # "cutlog"
PATIENCE_SECONDS: Final = 86_400.0
"""What a file may take, whatever the connection is set to: an index of a big table takes its time,
and one that is broken off would be begun again and again."""
_NAME: Final = re.compile(r"(\d{4})_[a-z0-9_]+\.sql")
_RECORD: Final = """
CREATE TABLE IF NOT EXISTS projection_migrations (
    number int PRIMARY KEY,
    name text NOT NULL,
    sha256 text NOT NULL,
    applied_at timestamptz NOT NULL DEFAULT now()
)
"""


class MigrationError(Exception):
    """A file was edited after it was applied, is missing, or stands out of order."""


class Migration(NamedTuple):
    number: int
    name: str
    sql: str

    @property
    def sha256(self) -> str:
        """What is remembered of the file."""
        return hashlib.sha256(self.sql.encode()).hexdigest()


def read(folder: Path = FOLDER) -> list[Migration]:
    """The files in their order; raises MigrationError for a gap."""
    found: list[Migration] = []
    for path in sorted(folder.glob("*.sql")):
        match = _NAME.fullmatch(path.name)
        if match is None or int(match[1]) != len(found) + 1:
            raise MigrationError(f"{path.name} is not number {len(found) + 1:04d}")
        found.append(Migration(len(found) + 1, path.name, path.read_text()))
    return found


async def migrate(db: Db, migrations: list[Migration] | None = None) -> list[str]:
    """Apply what is missing, one process at a time; the names of what was applied."""
    wanted = read() if migrations is None else migrations
    await db.execute("SELECT pg_advisory_lock($1)", _LOCK, timeout=PATIENCE_SECONDS)
    try:
        await db.execute(_RECORD, timeout=PATIENCE_SECONDS)
        rows = await db.fetch(
            "SELECT number, sha256 FROM projection_migrations", timeout=PATIENCE_SECONDS
        )
        applied = {row["number"]: row["sha256"] for row in rows}
        done: list[str] = []
        for migration in wanted:
            if migration.number in applied:
                if applied[migration.number] != migration.sha256:
                    raise MigrationError(f"{migration.name} was edited after it was applied")
                continue
            async with db.transaction():
                await db.execute(migration.sql, timeout=PATIENCE_SECONDS)
                await db.execute(
                    "INSERT INTO projection_migrations (number, name, sha256) VALUES ($1, $2, $3)",
                    migration.number,
                    migration.name,
                    migration.sha256,
                    timeout=PATIENCE_SECONDS,
                )
            done.append(migration.name)
        newest = max(applied, default=0)
        if newest > len(wanted):
            raise MigrationError(
                f"migration {newest} is applied, but this release has no such file"
            )
        return done
    finally:
        await db.execute("SELECT pg_advisory_unlock($1)", _LOCK)


async def describe(db: Db) -> str:
    """The catalog as text: tables, columns, constraints, indexes; partitions as one line each."""
    rows = await db.fetch(_CATALOG)
    return "".join(f"{row['line']}\n" for row in rows)
