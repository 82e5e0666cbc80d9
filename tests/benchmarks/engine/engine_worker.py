"""The job on the engine: `python -m tests.benchmarks.engine.engine_worker '{"prefix": …}'`."""

import json
import logging
import sys
from typing import Any

import msgspec

from processors.engine import Record, Settings, Source, Step, Table, build, run
from tests.benchmarks.engine import job

PARTITIONS = 2


class CounterRules:
    """Every command is decided, evolved, and answered with its events."""

    version = 1

    def __init__(self, events: str) -> None:
        self.events = events
        self.states = Table("state", decode=job.decode_state, encode=job.encode)

    def handle(self, step: Step, record: Record) -> None:
        key = record.key or b""
        state = step.get(self.states, key) or job.State()
        for event in job.decide(state, job.decode_command(record.value or b"")):
            state = job.evolve(state, event)
            step.send(self.events, key, job.encode(event), step.partition)
        step.put(self.states, key, state)

    def tick(self, step: Step, topic: str) -> bool:
        del step, topic
        return False

    def key_of(self, record: Record) -> bytes | None:
        return record.key

    def poisoned(self, step: Step, record: Record, error: BaseException) -> None:
        del step, record
        raise error

    def parked(self, step: Step, record: Record) -> None:
        """Nobody waits for what these commands ask."""

    def released(self, record: Record) -> bytes | None:
        del record
        return None


class Options(msgspec.Struct, kw_only=True):
    prefix: str
    broker: str
    data: str
    instance: str | None = None
    ticked: bool = True
    extra: dict[str, Any] = {}


class Lines(logging.Formatter):
    """JSON lines, for the bench to read."""

    def format(self, record: logging.LogRecord) -> str:
        extra = {
            name: getattr(record, name, None)
            for name in ("records", "recovery_seconds", "partitions")
        }
        extra["at"] = record.created
        return json.dumps({"message": record.getMessage(), **extra})


def log_lines() -> None:
    handler = logging.StreamHandler()
    handler.setFormatter(Lines())
    logging.basicConfig(level=logging.INFO, handlers=[handler])


def main(argument: str) -> int:
    log_lines()
    options = msgspec.json.decode(argument, type=Options)
    prefix = options.prefix
    rules = CounterRules(f"{prefix}-events")
    settings = Settings(
        broker=options.broker,
        app_id=prefix,
        partitions=PARTITIONS,
        changelog=f"{prefix}-state",
        journal=f"{prefix}-journal",
        instance_id=options.instance,
        data_directory=options.data,
        **options.extra,
    )
    app = build(
        settings,
        sources=[Source(f"{prefix}-commands", 0, ticked=options.ticked)],
        tables=[rules.states],
        outputs={rules.events},
        rules=rules,
    )
    return run(app)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
