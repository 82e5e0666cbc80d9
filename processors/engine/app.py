"""The Faust app: an agent for each source topic that forwards batches, one table, the worker."""

# Faust ships no types that hold; what it hands out is unknown, and stays so.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportUnknownParameterType=false
# pyright: reportPrivateUsage=false, reportUntypedBaseClass=false
# pyright: reportIncompatibleMethodOverride=false, reportMissingParameterType=false

# Private members and any types: that is what hooking into Faust means.
# ruff: noqa: ANN401, SLF001

import asyncio
import time
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any, Final, cast

import aiokafka
import faust
import uvloop
from aiokafka.errors import KafkaError
from prometheus_client import CollectorRegistry

from processors.engine.engine import Engine, Health
from processors.engine.errors import EngineError, TopologyError
from processors.engine.exits import DOUBT, TOPOLOGY, tell
from processors.engine.metrics import Metrics
from processors.engine.order import Batch
from processors.engine.records import Source
from processors.engine.rows import AnyTable
from processors.engine.rules import Rules
from processors.engine.settings import Settings
from processors.engine.tables import StateManager, StateTable
from processors.engine.transport import Consumer, Thread, Transport
from processors.engine.watchdog import Watchdog

KNOWN: Final = {"faust": "0.15.3", "aiokafka": "0.14.0"}
"""Private parts of both are used: read the engine against a new version before it is named here."""

_found = {"faust": faust.__version__, "aiokafka": aiokafka.__version__}
if _found != KNOWN:
    raise ImportError(f"the engine was read against {KNOWN}, found {_found}")


class BatchSchema(faust.Schema[Any, Any]):
    """Hands a batch to the agent as it is: nothing is decoded, so nothing can be skipped."""

    def compile(self, app: Any, **_: Any) -> Callable[..., Any]:
        async def decode(message: Any, *, propagate: bool = False) -> Any:  # noqa: ARG001
            return app.create_event(None, message.value, None, message)

        return decode


class App(faust.App):
    """A Faust app whose agents only forward; made by `build`."""

    engine: Engine

    def __init__(self, engine: Engine, **options: Any) -> None:
        settings = engine.settings
        self.engine = engine
        self._watchdog = Watchdog(engine)
        super().__init__(
            settings.app_id,
            broker=f"kafka://{settings.broker.replace(',', ';')}",
            Table=StateTable,
            TableManager=StateManager,
            store="memory://",
            datadir=settings.data_directory,
            web_enabled=False,
            topic_allow_declare=False,
            topic_disable_leader=True,
            topic_partitions=settings.partitions,
            table_standby_replicas=0,
            key_serializer="raw",
            value_serializer="raw",
            processing_guarantee="at_least_once",
            stream_wait_empty=True,
            stream_buffer_maxsize=4096,
            consumer_auto_offset_reset="none",
            consumer_group_instance_id=settings.instance_id,
            consumer_max_fetch_size=4 << 20,
            broker_max_poll_records=settings.limits.batch_max,
            broker_session_timeout=settings.session_seconds,
            broker_heartbeat_interval=settings.heartbeat_seconds,
            broker_rebalance_timeout=settings.rebalance_seconds_max,
            broker_request_timeout=max(settings.request_seconds_max, settings.session_seconds),
            **options,
        )

    def health(self) -> Health:
        """Whether every partition of this process is open, and if not, why."""
        return self.engine.health()

    def _new_transport(self) -> Transport:
        return Transport(self.conf.broker_consumer, self)

    def _new_producer_transport(self) -> Transport:
        return Transport(self.conf.broker_producer, self)

    async def on_start(self) -> None:
        await super().on_start()
        self._watchdog.start()
        self.add_future(self._beat())

    async def on_stop(self) -> None:
        self._watchdog.stop()
        await super().on_stop()

    async def _beat(self) -> None:
        """The once-a-second of the process: watchdog, ticks, gauges, lazy commits."""
        settings = self.engine.settings
        committed = time.monotonic()
        while not self.should_stop:
            thread: Thread = cast("Consumer", self.consumer)._thread
            seen = thread.seen()
            self._watchdog.beat(seen)
            await self.engine.beat(seen)
            if self.engine.ready and time.monotonic() - committed > settings.commit_seconds:
                committed = time.monotonic()
                positions = self.engine.positions()
                await thread.commit_lazily({k: v for k, v in positions.items() if v is not None})
            await asyncio.sleep(settings.tick_seconds)

    def _forward(self, source: Source) -> None:
        topic = self.topic(
            source.topic, schema=BatchSchema(), partitions=self.engine.settings.partitions
        )
        dispatch = self.engine.dispatch

        async def forward(stream: Any) -> None:
            async for event in stream.events():
                batch: Batch = event.value
                dispatch(batch)

        self.agent(topic, name=f"forward {source.topic}")(forward)


class Worker(faust.Worker):
    """Faust's, without the second that it sleeps when everything is over."""

    async def _sentinel_task(self) -> None:
        await asyncio.sleep(0)


def build(
    settings: Settings,
    *,
    sources: Sequence[Source],
    tables: Sequence[AnyTable],
    outputs: Collection[str],
    rules: Rules,
    registry: CollectorRegistry | None = None,
    engine: type[Engine] = Engine,
) -> App:
    """An app that applies `rules` to `sources`.

    `outputs` are all topics that a step may send to, sources among them; all topics exist already.
    `engine` is for tests that break it on purpose.
    """
    made = engine(
        settings,
        sources=sources,
        tables=tables,
        outputs=outputs,
        rules=rules,
        metrics=Metrics(registry if registry is not None else CollectorRegistry()),
    )
    app = App(made)
    for source in sources:
        app._forward(source)
    app.Table("state", key_type=bytes, value_type=bytes, partitions=settings.partitions)
    return app


def run(app: App) -> int:
    """Serve until SIGTERM or SIGINT; gives the exit code. Any doubt ends the process inside."""
    Path(app.engine.settings.data_directory).mkdir(parents=True, exist_ok=True)
    # the consumer's thread makes its own loop, so a loop alone is not enough
    asyncio.set_event_loop_policy(uvloop.EventLoopPolicy())  # pyright: ignore[reportDeprecated]
    try:
        asyncio.run(app.engine.check_topics())
    except TopologyError as error:
        tell(TOPOLOGY, str(error))
        return TOPOLOGY
    except (KafkaError, EngineError, OSError) as error:
        tell(DOUBT, f"no broker: {error!r}")
        return DOUBT
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    worker = Worker(app, loop=loop, redirect_stdouts=False, override_logging=False, quiet=True)
    worker.spinner = None  # it writes to the terminal all the same
    try:
        worker.execute_from_commandline()
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(bool(end.code))
