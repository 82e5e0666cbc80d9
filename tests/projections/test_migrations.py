"""The tables are what the numbered files make, and those files never change."""

import asyncio
import hashlib

import asyncpg
import pytest

from projections import migrations
from projections.migrations import Migration, MigrationError
from projections.projector import connect
from tests.projections.conftest import Ground

APPLIED = {
    "0001_read_models.sql": "8075c05a3cf619f2f305b2b6b75b7ef7f2d15ce341ae571d03d88b80bb3a017f",
    "0002_attempts.sql": "810bd82f4eb55edd2f45157a97c9c6aac913b7762d661dadae2425db05278057",
    "0003_letters.sql": "5a2faa3326d98f0020da70bc8a390c7e1d200554a0f66cf0ddf1f266a607b8aa",
    "0004_materials.sql": "73a7b84977b5e2509a6e103efebb0b4e380928cf48a2afa67388eb8fa0f1ddf2",
    "0005_results.sql": "bf75c6c00d61acbe13d5873e31aba666a5c0c41b39edc7b3092257aa7861886b",
    "0006_uploads.sql": "40c4cb0dd46f266dab0263296a680dca2d6244afcd2480e89173ab28989c9fe6",
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


@pytest.mark.integration
async def test_what_was_folded_before_a_migration_is_counted_by_it(ground: Ground) -> None:
    db = await connect(ground.dsn)
    await migrations.migrate(db, migrations.read()[:1])
    for task, lane, account in (("a", "p1", "x"), ("b", "p1", "x"), ("c", "p2", "y")):
        await db.execute(
            "INSERT INTO pool_waiting VALUES ('A', $1, 0, $2, $3, 's', now())", task, lane, account
        )
    task = f"{'t':0>26}000007"
    await db.execute(
        "INSERT INTO tasks (shard, task_id, lane, scene, user_id, tenant_id, account_id, tier, "
        "pool_id, status, seq, token, retries, losses, storing, fingerprint, parameters, "
        "material_ids, policy_version, reservation_id, reserved_micros, run_limit_seconds, "
        "trace_id, card_ms, created_at, updated_at) VALUES (7, $1, 'p2', 'genai', '', '', '', '', "
        "'A', 'RUNNING', 3, 1, 0, 0, false, '', '{}', '{}', 1, '', 0, 1, '', 0, now(), now())",
        task,
    )
    await db.execute(
        "INSERT INTO pool_slots VALUES ('A', $1, 1, 'r', 'r.1', 'accepted', now())", task
    )
    await migrations.migrate(db)
    queues = await db.fetch("SELECT lane, waiting FROM pool_queues ORDER BY lane")
    assert [tuple(row) for row in queues] == [("p1", 2), ("p2", 1)]
    accounts = await db.fetch("SELECT account_id, waiting FROM pool_accounts ORDER BY account_id")
    assert [tuple(row) for row in accounts] == [("x", 2), ("y", 1)]
    slots = await db.fetch("SELECT lane, scene, proposed_at = since AS same FROM pool_slots")
    assert [tuple(row) for row in slots] == [("p2", "genai", True)]
    await db.close()


@pytest.mark.integration
async def test_a_migration_of_a_big_table_is_not_broken_off(ground: Ground) -> None:
    """Begun again and again, it would never end, and the projector never begin."""
    db = await asyncpg.connect(ground.dsn, command_timeout=4)
    slow = Migration(1, "0001_slow.sql", "SELECT pg_sleep(6)")
    assert await migrations.migrate(db, [slow]) == ["0001_slow.sql"]
    await db.close()
