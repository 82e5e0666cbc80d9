"""The process, put together by hand: folds, reader, notices, progress, cleaning, archive."""

import asyncio
import logging
import signal
from collections.abc import Coroutine
from typing import Any, Final

from prometheus_client import CollectorRegistry
from redis.asyncio import Redis

from projections import cleaning, migrations, positions
from projections.failures import Archive
from projections.folding import Db, Fold
from projections.letters import Letters
from projections.notices import Notices
from projections.pools import Pools
from projections.progress import Progress
from projections.projector import AWAY, Projector, begin, connect
from projections.quotas import Quotas
from projections.refusals import Refusals
from projections.results import MaterialsAndResults
from projections.results_sweep import ResultSweep
from projections.sweeps import Sweeper
from projections.tasks import Tasks
from projections.uploads_sweep import UploadSweep
from projections.watching import Watching
from schema.settings import Kafka, Postgres, Settings, need
from schema.settings import Redis as RedisSettings
from schema.topics import Topic
from schema.wires.log import (
    LogReader,
    LogUnavailableError,
    LogWriter,
    Place,
    check_topics,
    cluster_id,
)
from schema.wires.objects import ObjectStore
from schema.wires.telemetry import (
    HealthServer,
    end_tasks,
    facts,
    new_registry,
    stop_quietly,
    write_ready_file,
)

_WAIT_SECONDS: Final = 1.0
_log = logging.getLogger(__name__)


def all_folds() -> list[Fold]:
    """One of each topic. They keep state: a process makes them once."""
    return [Tasks(), Quotas(), Pools(), MaterialsAndResults(), Refusals(), Letters()]


async def run(settings: Settings) -> None:
    """Until SIGTERM or SIGINT; raises on any doubt."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    await serve(settings, stop)


async def serve(settings: Settings, stop: asyncio.Event) -> None:
    """Run the projector until `stop` is set."""
    kafka: Kafka = need(settings, "kafka")
    postgres: Postgres = need(settings, "postgres")
    redis_settings: RedisSettings = need(settings, "redis")
    registry = new_registry()
    watching = Watching(registry)
    health = HealthServer(registry, ready=watching.problem, port=settings.projections.metrics_port)
    await health.start()
    folds = all_folds()
    places = [
        Place(fold.topic.value, number) for fold in folds for number in range(kafka.partitions)
    ]
    reader = LogReader(kafka, places, client_id="projector")
    redis = Redis.from_url(redis_settings.url, socket_timeout=2, socket_connect_timeout=2)
    try:
        epoch = await _open(kafka, postgres, reader, folds, watching, stop)
        if epoch is None:
            return
        notices = Notices(redis, epoch)
        projector = Projector(
            reader,
            postgres.dsn,
            folds,
            window_seconds=settings.projections.window_ms / 1000,
            watching=watching,
            told=notices.tell,
        )
        progress = _progress(kafka, redis)
        store = None if settings.objects is None else ObjectStore(settings.objects)
        archive = Archive(
            postgres.dsn, store, registry, every_seconds=settings.projections.archive_ms / 1000
        )
        write_ready_file(settings.process.ready_file, metrics_port=health.port)
        _log.info("projector runs", extra=facts(metrics_port=health.port, epoch=epoch))
        await _together(
            projector.run(stop),
            notices.run(),
            progress.run(),
            cleaning.run(postgres.dsn),
            archive.run(),
            Sweeper(postgres.dsn, kafka).run(),
            *_sweeps(settings, kafka, postgres, registry),
        )
    finally:
        await stop_quietly(reader.stop)
        await stop_quietly(redis.aclose)
        await stop_quietly(health.stop)


def _progress(kafka: Kafka, redis: "Redis") -> Progress:
    places = [Place(Topic.PROGRESS.value, number) for number in range(kafka.partitions)]
    return Progress(LogReader(kafka, places, client_id="projector-progress", wait_ms=200), redis)


def _sweeps(
    settings: Settings, kafka: Kafka, postgres: Postgres, registry: CollectorRegistry
) -> list[Coroutine[Any, Any, None]]:
    """What looks after objects, where there is a store."""
    objects = settings.objects
    if objects is None:
        return []
    results = ResultSweep(
        postgres.dsn,
        ObjectStore(objects),
        LogWriter(kafka, client_id="result-sweep"),
        registry,
        settings.projections,
        partitions=kafka.partitions,
        cold_class=objects.cold_class,
    )
    uploads = UploadSweep(postgres.dsn, objects, kafka, registry)
    return [results.run(), uploads.run()]


async def _open(
    kafka: Kafka,
    postgres: Postgres,
    reader: LogReader,
    folds: list[Fold],
    watching: Watching,
    stop: asyncio.Event,
) -> str | None:
    """Wait for Kafka and Postgres, make the tables, stand at their positions; the epoch.

    None: told to stop before all were there.
    """
    topics = [fold.topic.value for fold in folds]
    while not stop.is_set():
        try:
            await check_topics(kafka, [*topics, Topic.PROGRESS.value])
            cluster = await cluster_id(kafka)
            db = await connect(postgres.dsn)
            try:
                applied = await migrations.migrate(db)
                epoch = await positions.ensure_log(db, cluster)
                await reader.start()
                known = await begin(reader, db, topics)
            finally:
                await db.close(timeout=5)
        except (LogUnavailableError, *AWAY) as error:
            watching.trouble(repr(error))
            _log.warning("waiting for log and tables", extra=facts(error=repr(error)))
            await reader.stop()
            await asyncio.sleep(_WAIT_SECONDS)
        else:
            _log.info("read models opened", extra=facts(migrations=applied, places=len(known)))
            return epoch
    return None


async def _together(first: Coroutine[Any, Any, None], *others: Coroutine[Any, Any, None]) -> None:
    """Run all until the first one ends, or any fails; then end the others."""
    main = asyncio.create_task(first)
    tasks = [main, *(asyncio.create_task(other) for other in others)]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        await end_tasks(*tasks)


async def empty(db: Db, names: list[str]) -> None:
    """Empty projections (all, if none is named) to be folded anew by the projector.

    A projector that runs finds its positions gone and ends; the next one begins at the beginning.
    Until it has caught up nobody takes what is missing here for something that never was.
    """
    chosen = [fold for fold in all_folds() if not names or fold.name in names]
    async with db.transaction():
        # First: a projector that is about to say that it has caught up holds this row, or waits.
        await db.execute("UPDATE projection_log SET caught_up_at = NULL")
        for fold in chosen:
            await db.execute(f"TRUNCATE {', '.join(fold.tables)}")
            topic = fold.topic.value
            await db.execute("DELETE FROM projection_positions WHERE topic = $1", topic)
            await db.execute("DELETE FROM projection_seqs WHERE topic = $1", topic)
        if not names:
            await db.execute("DELETE FROM projection_log")
            # Of another log, or of this one from its beginning: written twice is written once.
            await db.execute("DELETE FROM archive_positions")
