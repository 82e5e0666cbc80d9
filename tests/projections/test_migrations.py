"""The tables are what the numbered files make, and those files never change."""

import asyncio
import hashlib

import pytest

from projections import migrations
from projections.migrations import Migration, MigrationError
from projections.projector import connect
from tests.projections.conftest import Ground

APPLIED = {
    "0001_read_models.sql": "8075c05a3cf619f2f305b2b6b75b7ef7f2d15ce341ae571d03d88b80bb3a017f",
}
"""Digests of the files that were ever released. A line is added with a file and never changed."""


def test_a_migration_is_never_edited() -> None:
    read = {one.name: hashlib.sha256(one.sql.encode()).hexdigest() for one in migrations.read()}
    assert {name: read[name] for name in APPLIED} == APPLIED
    assert read.keys() == APPLIED.keys()


@pytest.mark.integration
async def test_the_schema_is_what_the_migrations_make(ground: Ground) -> None:
    db = await connect(ground.dsn)
    await migrations.migrate(db)
    assert await migrations.describe(db) == migrations.SCHEMA.read_text()
    await db.execute("ALTER TABLE tasks ADD COLUMN by_hand int")
    assert await migrations.describe(db) != migrations.SCHEMA.read_text()
    await db.close()


@pytest.mark.integration
async def test_migrations_are_applied_once_whoever_is_first(ground: Ground) -> None:
    pair = [await connect(ground.dsn), await connect(ground.dsn)]
    done = await asyncio.gather(*(migrations.migrate(db) for db in pair))
    assert sorted(done, key=len) == [[], [one.name for one in migrations.read()]]
    edited = [Migration(1, "0001_read_models.sql", "SELECT 1")]
    with pytest.raises(MigrationError, match="edited"):
        await migrations.migrate(pair[0], edited)
    with pytest.raises(MigrationError, match="no such file"):
        await migrations.migrate(pair[1], [])
    for db in pair:
        await db.close()
