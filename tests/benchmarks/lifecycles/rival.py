"""Procrastinate (a task queue on Postgres) doing the least that it can: defer, run, finish."""

import asyncio
import time
from urllib.parse import urlsplit

import asyncpg
import procrastinate

_JOBS = 2_000
_DATABASE = "procrastinate_rival"
_CONCURRENCY = 10


async def procrastinate_jobs_per_second(dsn: str) -> float:
    """No-op jobs that are deferred one by one while one worker drains them, a second."""
    connection = await asyncpg.connect(dsn)
    await connection.execute(f"DROP DATABASE IF EXISTS {_DATABASE}")
    await connection.execute(f"CREATE DATABASE {_DATABASE}")
    await connection.close()
    app = procrastinate.App(
        connector=procrastinate.PsycopgConnector(
            conninfo=urlsplit(dsn)._replace(path=f"/{_DATABASE}").geturl()
        )
    )
    done = asyncio.Event()
    ended = 0

    @app.task(name="no_op")
    async def no_op(number: int) -> None:
        nonlocal ended
        del number
        ended += 1
        if ended == _JOBS:
            done.set()

    async with app.open_async():
        await app.schema_manager.apply_schema_async()
        worker = asyncio.create_task(
            app.run_worker_async(
                concurrency=_CONCURRENCY, install_signal_handlers=False, listen_notify=True
            )
        )
        began = time.monotonic()
        for number in range(_JOBS):
            await no_op.defer_async(number=number)
        async with asyncio.timeout(120):
            await done.wait()
        seconds = time.monotonic() - began
        worker.cancel()
        await asyncio.gather(worker, return_exceptions=True)
    return round(_JOBS / seconds, 1)
