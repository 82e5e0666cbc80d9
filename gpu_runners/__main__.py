"""`python -m gpu_runners`: one runner, with the settings of its environment."""

import asyncio
import logging
import os
import shutil
import signal
import sys
from contextlib import AsyncExitStack
from pathlib import Path

import msgspec
import uvloop

from gpu_runners.metrics import Metrics
from gpu_runners.objects import AttemptStore
from gpu_runners.pipelines.needs import lacking
from gpu_runners.runner import Runner, worker_options
from schema.settings import Kafka, Objects, Settings, SettingsError, load, need
from schema.settings import Runner as RunnerSettings
from schema.wires.keys import FileKeyStore
from schema.wires.log import LogWriter
from schema.wires.objects import ObjectStore
from schema.wires.processes import collect_rarely
from schema.wires.telemetry import (
    HealthServer,
    facts,
    new_registry,
    set_up_logging,
    write_ready_file,
)
from schema.words import Scene

log = logging.getLogger(__name__)


async def run(settings: Settings) -> None:
    """Compose the process by hand and run it until SIGTERM or a spot notice."""
    kafka: Kafka = need(settings, "kafka")
    objects: Objects = need(settings, "objects")
    look_at_needs(settings.runner)
    scratch = Path(settings.runner.work_directory)
    shutil.rmtree(scratch, ignore_errors=True)  # what an earlier start left is nobody's
    scratch.mkdir(parents=True)  # noqa: ASYNC240 - once, before anything waits
    registry = new_registry()
    metrics = Metrics(registry, settings.runner.slots)
    writer = LogWriter(kafka, client_id=settings.runner.runner_id)
    async with AsyncExitStack() as stack:
        stores = [
            await stack.enter_async_context(ObjectStore(endpoint)) for endpoint in _ways(objects)
        ]
        runner = Runner(
            settings.runner,
            kafka,
            writer=writer,
            store=AttemptStore(*stores),
            metrics=metrics,
            keys=FileKeyStore(settings.keys.directory) if settings.keys is not None else None,
        )
        stopping = asyncio.Event()

        def stop() -> None:
            stopping.set()
            runner.stop()

        def take_away() -> None:
            stopping.set()
            runner.take_away()

        loop = asyncio.get_running_loop()
        for name in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(name, stop)
        loop.add_signal_handler(signal.SIGUSR1, take_away)
        health = HealthServer(
            registry,
            ready=lambda: None if runner.ready else "not known to its pool",
            port=settings.runner.metrics_port,
        )
        await health.start()
        write_ready_file(settings.process.ready_file, metrics_port=health.port)
        await writer.start_unless(stopping)
        try:
            await runner.run()
        finally:
            await writer.stop()
            await health.stop()


def look_at_needs(settings: RunnerSettings) -> None:
    """Say what this runner can't make before it takes work.

    Which scenes its pool gives it is the policy's, so that is only logged; a scene that it was told
    to get ready for is one that it will be given. Errors: SettingsError.
    """
    options = worker_options(settings)
    for scene in Scene:
        why = lacking(scene, options)
        if why is None:
            continue
        if scene in options.scenes:
            raise SettingsError(f"CUTLOG_RUNNER_WARM_SCENES: {scene} can't be made here: {why}")
        log.info("a scene can't be made here", extra=facts(scene=scene.value, why=why))


def _ways(objects: Objects) -> list[Objects]:
    """The endpoints over which the bucket is reached, the first choice first."""
    others = (objects.fallback_endpoint,) if objects.fallback_endpoint else ()
    return [
        objects,
        *(msgspec.structs.replace(objects, endpoint=other) for other in others),
    ]


def main() -> int:
    """Read the settings, run, say how it ended."""
    try:
        settings = load(os.environ)
        collect_rarely()
        set_up_logging(settings.runner.runner_id)
        uvloop.run(run(settings))
    except SettingsError as error:
        print(error, file=sys.stderr)  # noqa: T201 - there is no log before there are settings
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
