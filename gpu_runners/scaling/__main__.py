"""`python -m gpu_runners.scaling`: gives pools the cards that they want, or tells the number."""

import asyncio
import os
import signal
import sys
from pathlib import Path

import uvloop

from gpu_runners.scaling.figure import Figure
from gpu_runners.scaling.following import Following
from gpu_runners.scaling.local import Figures, FleetTakenError, LocalFleet
from gpu_runners.scaling.wanted import Wanted
from schema.policy import Policy, PolicyError, read_policy
from schema.settings import Kafka, Scaling, Settings, SettingsError, load, need
from schema.wires.telemetry import (
    HealthServer,
    end_tasks,
    new_registry,
    set_up_logging,
    write_ready_file,
)

_STEP_SECONDS = 1.0
"""A runner has no other way to tell that it has ended."""
_STOP_STEP_SECONDS = 0.1


async def run(settings: Settings) -> None:
    """Compose the process by hand and run it until SIGTERM; then every local runner is drained."""
    kafka: Kafka = need(settings, "kafka")
    scaling = settings.scaling
    registry = new_registry()
    figure = Figure(registry)
    only = [name.strip() for name in scaling.pools.split(",") if name.strip()]
    wanted = Wanted(_policy_of(scaling), only)
    directory = Path(scaling.directory)
    directory.mkdir(parents=True, exist_ok=True)  # noqa: ASYNC240 - once, before anything waits
    following = Following(kafka, wanted, directory / "wanted.json")
    local = scaling.executor == "local"
    fleet = LocalFleet(scaling, dict(os.environ), Figures(registry)) if local else None
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for name in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(name, stopping.set)
    health = HealthServer(
        registry,
        ready=lambda: None if following.caught_up else "pool-events are not read to their end",
        host=scaling.host,
        port=scaling.metrics_port,
        more=figure.document,
    )
    await health.start()
    write_ready_file(settings.process.ready_file, metrics_port=health.port)
    reading = asyncio.create_task(following.run())
    try:
        await work(following, reading, wanted, figure, fleet, stopping)
        if fleet is not None:
            await _drain_all(fleet)
    finally:
        await end_tasks(reading)
        await health.stop()
        if fleet is not None:
            fleet.close()


async def work(
    following: Following,
    reading: "asyncio.Task[None]",
    wanted: Wanted,
    figure: Figure,
    fleet: LocalFleet | None,
    stopping: asyncio.Event,
) -> None:
    """Act on what the log says, at once when it changes, and look after the runners.

    `reading` follows the log; that it ended is a defect, or an event of a newer release: whoever
    went on without it would hold on to numbers that nobody wants any more. Raises what it raised.
    """
    stop = asyncio.create_task(stopping.wait())
    try:
        while not stopping.is_set():
            following.changed.clear()
            pools = wanted.pools()
            if following.caught_up and pools is not None:
                figure.set(pools)
                if fleet is not None:
                    await asyncio.to_thread(fleet.step, pools)
            changed = asyncio.create_task(following.changed.wait())
            await asyncio.wait(
                [stop, changed, reading],
                timeout=_STEP_SECONDS,
                return_when=asyncio.FIRST_COMPLETED,
            )
            await end_tasks(changed)
            if reading.done():
                reading.result()
    finally:
        await end_tasks(stop)


async def _drain_all(fleet: LocalFleet) -> None:
    """Nobody looks after them from here on, so they hand back what they have and end."""
    while True:
        await asyncio.to_thread(fleet.step, {})
        if not fleet.runners:
            return
        await asyncio.sleep(_STOP_STEP_SECONDS)


def _policy_of(scaling: Scaling) -> Policy | None:
    """The policy before the log tells of one; raises SettingsError if it is none."""
    if not scaling.policy_file:
        return None
    try:
        return read_policy(Path(scaling.policy_file).read_bytes())
    except (OSError, PolicyError) as error:
        message = f"CUTLOG_SCALING_POLICY_FILE: {error}"
        raise SettingsError(message) from error


def main() -> int:
    """Read the settings, run, say how it ended."""
    try:
        settings = load(os.environ)
        set_up_logging("scaling", level=settings.process.log_level)
        uvloop.run(run(settings))
    except (SettingsError, FleetTakenError) as error:
        print(error, file=sys.stderr)  # noqa: T201 - there is no log before there are settings
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
