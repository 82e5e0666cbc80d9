"""`python -m processors`: one processor, with the settings of its environment.

`replay` and `simulate` are started here too once they exist; without a word it serves.
"""

import asyncio
import os
import sys
import threading
from pathlib import Path

from prometheus_client import CollectorRegistry

from processors.app import build_app, changelog_of
from processors.engine import App, run
from processors.first_policy import publish_first_policy
from schema.policy import PolicyError
from schema.settings import Kafka, Settings, SettingsError, load, need
from schema.wires.log import LogUnavailableError, TopologyError, create_topics
from schema.wires.processes import collect_rarely
from schema.wires.telemetry import (
    HealthServer,
    new_registry,
    set_up_logging,
    write_ready_file,
)


async def prepare(settings: Settings) -> None:
    """Make missing topics, check all, publish the first policy."""
    kafka: Kafka = need(settings, "kafka")
    await create_topics(kafka, changelogs=[changelog_of(settings.processors.app_id)])
    if settings.processors.policy_file:
        await publish_first_policy(kafka, Path(settings.processors.policy_file))


def serve_health(app: App, registry: CollectorRegistry, settings: Settings) -> None:
    """Answer /healthz, /readyz and /metrics from a thread: the worker owns the main loop."""

    def problem() -> str | None:
        health = app.health()
        return None if health.ready else health.reason

    async def serve() -> None:
        server = HealthServer(registry, ready=problem, port=settings.processors.metrics_port)
        await server.start()
        write_ready_file(settings.process.ready_file, metrics_port=server.port)
        await asyncio.Event().wait()

    threading.Thread(target=lambda: asyncio.run(serve()), name="health", daemon=True).start()


def main() -> int:
    """Read the settings, prepare, serve until SIGTERM; the exit code says how it ended."""
    collect_rarely()
    try:
        settings = load(os.environ)
        name = settings.processors.instance_id or "processor"
        set_up_logging(name)
        asyncio.run(prepare(settings))
        registry = new_registry()
        app = build_app(settings, registry)
    except (SettingsError, PolicyError, TopologyError) as error:
        print(error, file=sys.stderr)  # noqa: T201 - nothing runs yet
        return 2
    except LogUnavailableError as error:
        print(error, file=sys.stderr)  # noqa: T201
        return 69  # EX_UNAVAILABLE: a supervisor tries again
    serve_health(app, registry, settings)
    return run(app)


if __name__ == "__main__":
    sys.exit(main())
