"""A log and a database of its own for each test, on the shared stack."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit, urlunsplit
from uuid import uuid4

import asyncpg
import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient

from cutlog.stack import LocalStack
from projections import process
from schema.settings import Kafka, Settings, load, need
from schema.topics import Topic
from schema.wires.log import LogReader, Place, create_topics
from tests.projections.histories import Placed, value_of
from tests.projections.raw_fold import RawFold

TOPICS = [fold.topic for fold in process.all_folds()]


@dataclass
class Ground:
    """One log, one database, and what is asked of both."""

    settings: Settings
    kafka: Kafka
    dsn: str
    environ: dict[str, str]

    async def write(self, placed: Iterable[Placed], *, batch: int = 50, abort: int = 0) -> None:
        """Append in transactions, as the processors do; each `abort`-th is aborted once first."""
        producer: Any = AIOKafkaProducer(
            bootstrap_servers=self.kafka.brokers, transactional_id=f"history-{uuid4().hex}"
        )
        await producer.start()
        try:
            rest, number = list(placed), 0
            while rest:
                now, rest, number = rest[:batch], rest[batch:], number + 1
                if abort and number % abort == 0:
                    await producer.begin_transaction()
                    await self._send(producer, now)
                    await producer.abort_transaction()
                async with producer.transaction():
                    await self._send(producer, now)
        finally:
            await producer.stop()

    async def _send(self, producer: Any, placed: Iterable[Placed]) -> None:  # noqa: ANN401
        sent = [
            await producer.send(one[0].value, value_of(one), key=one[2].encode(), partition=one[1])
            for one in placed
        ]
        await asyncio.gather(*sent)

    async def fold_raw(self) -> RawFold:
        """Everything committed, folded from its JSON without any of our code."""
        places = [Place(t.value, n) for t in TOPICS for n in range(self.kafka.partitions)]
        folded = RawFold()
        async with LogReader(self.kafka, places) as reader:
            ends = await reader.ends()
            await reader.seek_to_beginning()
            while any(reader.positions[place] < end for place, end in ends.items()):
                for found in await reader.read():
                    for record in found.records:
                        event = json.loads(record.value or b"")
                        folded.feed(*found.place, record.offset, event)
        return folded

    async def db(self) -> Any:  # noqa: ANN401 - asyncpg's connection
        """A connection."""
        return await asyncpg.connect(self.dsn, server_settings={"timezone": "UTC"})

    async def applied(self, seconds: float = 60) -> None:
        """Wait until every committed record is applied, by the positions in the tables."""
        places = [Place(t.value, n) for t in TOPICS for n in range(self.kafka.partitions)]
        db = await self.db()
        try:
            async with LogReader(self.kafka, places) as reader, asyncio.timeout(seconds):
                while True:
                    ends = await reader.ends()
                    if await self._stand(db) >= ends.items():
                        return
                    await asyncio.sleep(0.02)
        finally:
            await db.close()

    async def _stand(self, db: Any) -> Any:  # noqa: ANN401
        """Positions as items, each end with nothing committed behind counted as reached."""
        try:
            rows = await db.fetch("SELECT topic, log_partition, next FROM projection_positions")
        except asyncpg.UndefinedTableError:
            return set()
        found = {Place(row[0], row[1]): row[2] for row in rows}
        return _Reached(found)

    async def begun(self, seconds: float = 60) -> None:
        """Wait until anything was ever applied."""
        query = "SELECT 1 FROM projection_positions WHERE next > 0"
        async with asyncio.timeout(seconds):
            while True:
                with suppress(asyncpg.UndefinedTableError):
                    if await self.rows(query):
                        return
                await asyncio.sleep(0.01)

    async def rows(self, query: str, *arguments: Any) -> list[dict[str, Any]]:  # noqa: ANN401
        """The rows of a query."""
        db = await self.db()
        try:
            return [dict(row) for row in await db.fetch(query, *arguments)]
        finally:
            await db.close()

    async def dump(self) -> dict[str, list[str]]:
        """Every row of every read model as text, in order; positions and clocks left out."""
        tables = [table for fold in process.all_folds() for table in fold.tables]
        dumped: dict[str, list[str]] = {}
        for table in [*tables, "projection_seqs"]:
            found = await self.rows(f"SELECT t::text AS line FROM {table} AS t ORDER BY 1")  # noqa: S608
            dumped[table] = [row["line"] for row in found]
        return dumped


class _Reached:
    """Compares positions with ends: a position at or behind the end has reached it."""

    def __init__(self, found: dict[Place, int]) -> None:
        self._found = found

    def __ge__(self, ends: Any) -> bool:  # noqa: ANN401
        return all(self._found.get(place, -1) >= end for place, end in ends)


@pytest.fixture
async def ground(stack: LocalStack) -> AsyncIterator[Ground]:
    """Empty topics, an empty database."""
    environ = stack.environ()
    shared = load(environ)
    kafka: Kafka = need(shared, "kafka")
    await _fresh_topics(kafka)
    name = f"t_{uuid4().hex}"
    shared_dsn = environ["CUTLOG_POSTGRES_DSN"]
    await _admin(shared_dsn, f"CREATE DATABASE {name}")
    dsn = urlunsplit(urlsplit(shared_dsn)._replace(path=f"/{name}"))
    variables = {
        **environ,
        "CUTLOG_POSTGRES_DSN": dsn,
        "CUTLOG_PROJECTIONS_WINDOW_MS": "20",
        "CUTLOG_PROJECTIONS_ARCHIVE_MS": "300",
    }
    settings = load(variables)
    yield Ground(settings=settings, kafka=kafka, dsn=dsn, environ=variables)
    await _admin(shared_dsn, f"DROP DATABASE {name} WITH (FORCE)")


async def _admin(dsn: str, statement: str) -> None:
    db = await asyncpg.connect(dsn)
    await db.execute(statement)
    await db.close()


async def _fresh_topics(kafka: Kafka) -> None:
    """Delete the topics of facts and make them anew, so that they begin at 0."""
    admin: Any = AIOKafkaAdminClient(bootstrap_servers=kafka.brokers)
    await admin.start()
    try:
        names = {topic.value for topic in [*TOPICS, Topic.PROGRESS]}
        there = names.intersection(await admin.list_topics())
        if there:
            await admin.delete_topics(list(there))
            while names.intersection(await admin.list_topics()):  # noqa: ASYNC110 - Kafka's
                await asyncio.sleep(0.02)
    finally:
        await admin.close()
    await create_topics(kafka)
