"""A worker process of the toy: `python -m tests.processors.engine.worker '{"prefix": …}'`.

With `fence` off or a `gate` file it breaks the engine on purpose: the tests must notice.
"""

# Other processes, files and Kafka have no asyncio.Event: they are asked again and again.
# ruff: noqa: ANN401, ASYNC110

import asyncio
import logging
import sys
import uuid
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec

from processors.engine import Batch, Engine, Settings, Writer, build, run, transaction
from processors.engine.owner import Owner, Shared
from tests.processors.engine.toy import Topics, ToyRules


class Options(msgspec.Struct, kw_only=True):
    prefix: str
    broker: str
    partitions: int = 2
    instance: str | None = None
    session: float = 2.0
    data: str = ".engine"
    follow: bool = False
    fence: bool = True
    gate: str | None = None
    """While the file `GATE.armed` is there, commits wait, and say so in `GATE.held`."""
    lose: str | None = None
    """The next batch of this topic is lost on its way to the owner."""
    extra: dict[str, Any] = {}
    """More settings of the engine."""


class Fields(logging.Formatter):
    """The usual line, and what stands in `extra`."""

    def format(self, record: logging.LogRecord) -> str:
        known = logging.makeLogRecord({}).__dict__
        fields = {k: v for k, v in record.__dict__.items() if k not in known and k != "message"}
        return f"{super().format(record)} {fields or ''}"


def gated(gate: Path) -> Callable[[Any, Any], Awaitable[None]]:
    armed, held = gate.with_suffix(".armed"), gate.with_suffix(".held")

    async def commit(producer: Any, batches: Any) -> None:
        if armed.exists():
            held.touch()
            while armed.exists():
                await asyncio.sleep(0.01)
        await transaction.commit(producer, batches)

    return commit


def engine_of(options: Options) -> type[Engine]:
    class Breakable(Engine):
        def transactional_id(self, number: int) -> str:
            if options.fence:
                return super().transactional_id(number)
            return f"unfenced-{uuid.uuid4()}"

        def owner(self, writer: Writer, producer: Any, shared: Shared) -> Owner:
            owner = super().owner(writer, producer, shared)
            if options.gate is not None:
                owner.commit = gated(Path(options.gate))
            return owner

        def dispatch(self, batch: Batch) -> None:
            if batch.topic == options.lose:
                options.lose = None
                return
            super().dispatch(batch)

    return Breakable


def main(argument: str) -> int:
    handler = logging.StreamHandler()
    handler.setFormatter(Fields(logging.BASIC_FORMAT))
    logging.basicConfig(level=logging.INFO, handlers=[handler])
    logging.getLogger("aiokafka").setLevel(logging.WARNING)
    options = msgspec.json.decode(argument, type=Options)
    topics = Topics(options.prefix)
    rules = ToyRules(topics, follow=options.follow)
    settings = Settings(
        broker=options.broker,
        app_id=options.prefix,
        partitions=options.partitions,
        changelog=topics.state,
        journal=topics.journal,
        instance_id=options.instance,
        data_directory=options.data,
        session_seconds=options.session,
        heartbeat_seconds=options.session / 4,
        **options.extra,
    )
    app = build(
        settings,
        sources=topics.sources,
        tables=rules.tables,
        outputs=topics.outputs,
        rules=rules,
        engine=engine_of(options),
    )
    return run(app)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
