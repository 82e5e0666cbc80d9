"""`python -m gpu_runners.probing`: checks what was uploaded, with the settings it is given."""

import asyncio
import os
import shutil
import signal
import sys
from pathlib import Path

import uvloop

from gpu_runners.probing.consuming import Consumer
from gpu_runners.probing.limits import MaterialLimits, ProcessLimits
from gpu_runners.probing.metrics import Metrics
from gpu_runners.probing.prober import Prober, wanted
from gpu_runners.probing.sandbox import Sandbox
from gpu_runners.probing.uploads import Uploads
from schema.settings import Kafka, Objects, Probing, Settings, SettingsError, load, need
from schema.wires.log import LogWriter
from schema.wires.objects import ObjectStore
from schema.wires.processes import collect_rarely
from schema.wires.telemetry import (
    HealthServer,
    new_registry,
    set_up_logging,
    write_ready_file,
)

_MEGABYTE = 1_000_000


def limits_of(probing: Probing) -> tuple[MaterialLimits, ProcessLimits]:
    """What a material may be, and what looking at it may take."""
    return (
        MaterialLimits(
            bytes_max=probing.megabytes_max * _MEGABYTE,
            seconds_max=probing.seconds_max,
            decoded_seconds_max=probing.cpu_seconds / 3,
        ),
        ProcessLimits(
            memory_bytes=probing.memory_megabytes << 20,
            cpu_seconds=probing.cpu_seconds,
            wall_seconds=probing.wall_seconds,
        ),
    )


async def run(settings: Settings) -> None:
    """Compose the process by hand and run it until SIGTERM."""
    kafka: Kafka = need(settings, "kafka")
    objects: Objects = need(settings, "objects")
    probing = settings.probing
    directory = Path(probing.work_directory).absolute()  # noqa: ASYNC240 - once, at the start
    shutil.rmtree(directory, ignore_errors=True)  # what an earlier start left is nobody's
    directory.mkdir(parents=True, mode=0o700)
    material, process = limits_of(probing)
    registry = new_registry()
    writer = LogWriter(kafka, client_id="probing")
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for name in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(name, stopping.set)
    async with ObjectStore(objects) as store:
        prober = Prober(
            Uploads(store, material.bytes_max),
            Sandbox(material, process),
            writer,
            Metrics(registry),
            directory=directory,
            partitions=kafka.partitions,
        )
        consumer = Consumer(
            kafka,
            group=probing.group,
            slots=probing.slots,
            wanted=wanted,
            work=prober.handle,
        )
        health = HealthServer(
            registry,
            ready=lambda: prober.problem if consumer.ready else "material-events are not read",
            port=probing.metrics_port,
        )
        await health.start()
        write_ready_file(settings.process.ready_file, metrics_port=health.port)
        try:
            await writer.start_unless(stopping)
            await consumer.run(stopping, probing.drain_seconds)
        finally:
            await writer.stop()
            await health.stop()
            shutil.rmtree(directory, ignore_errors=True)


def main() -> int:
    """Read the settings, run, say how it ended."""
    try:
        settings = load(os.environ)
        collect_rarely()
        set_up_logging("probing", level=settings.process.log_level)
        uvloop.run(run(settings))
    except SettingsError as error:
        print(error, file=sys.stderr)  # noqa: T201 - there is no log before there are settings
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
