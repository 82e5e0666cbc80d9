"""A Faust engine that loses nothing and doubles nothing.

What it is
----------
Stock Faust commits an event whose handler raised, drops events after a recovery, doubles them after
a crash and lets a stalled worker write over its successor. This package keeps Faust's app, worker,
agents, topics, table, changelog, assignment and rebalance, and gives what they lack: **one Kafka
transaction for each batch of a partition number**. Outputs, changed rows, source positions and a
journal record are committed together or not at all, by a producer whose transactional id belongs
to the partition number, so a former owner is fenced before its successor reads a thing.

It imports nothing of the application around it and can be lifted out.

How to use it
-------------
Write a class with the six members of `Rules`, declare `Table`s and `Source`s, then::

    app = build(Settings(broker="127.0.0.1:9092", app_id="orders", partitions=2,
                         changelog="orders-state", journal="orders-journal"),
                sources=[Source("order-commands", 0, ticked=True)],
                tables=[ORDERS], outputs={"order-events"}, rules=OrderRules())
    sys.exit(run(app))

`handle(step, record)` is synchronous: `step.get`, decide, `step.put`, `step.send`. `step.now` is
the only time. What it raises makes the command poison, never a crash: `rules.py`, `quarantine.py`.

How it works
------------
- `transport.py` hands all fetched records of a topic-partition to its agent as one `Batch`; the
  agent forwards it to the `Owner` of the partition number (`owner.py`).
- The owner takes what waits, in the order of `order.py`, lets the `Writer` (`writer.py`, without
  any Kafka) work it, and commits (`transaction.py`). No effect: no transaction, positions ride.
- On assignment (`engine.py`): fence, read the changelog (`changelog.py`), check and seek, open.
- Positions and clocks are one row of the changelog, `NUL book`; rows are `TABLE NUL KEY`.
- Doubt ends the process at once (`exits.py`, `watchdog.py`): a gap, a failed or late transaction, a
  failed recovery, a trimmed source, no progress. A supervisor starts it again; a static
  `instance_id` makes that fast. Code that is wrong (many quarantines) stays down instead: alive,
  not ready.

What it needs
-------------
All sources, the changelog (compacted) and the journal exist with the same number of partitions;
sources have `message.timestamp.type=LogAppendTime`. Everybody reads `read_committed`. A changed set
of sources is stop all, start all. A plain `topic.send` raises. Private parts of Faust and aiokafka
are used: their versions are asserted at import.

Names below are imported lazily where they need Faust, so replay, simulation and tests of rules can
use the `Writer` without it.
"""

from typing import TYPE_CHECKING, Any

from processors.engine.errors import (
    EngineError,
    PlainSendForbiddenError,
    RecordTooLargeError,
    UndeclaredTopicError,
    UnknownVersionError,
)
from processors.engine.order import Batch, Limits
from processors.engine.records import TICK_KEY, Record, Sent, Source
from processors.engine.routes import Routes, murmur2
from processors.engine.rows import Listener, Table
from processors.engine.rules import Rules
from processors.engine.settings import Settings
from processors.engine.step import Step
from processors.engine.writer import Effects, Writer

if TYPE_CHECKING:
    from processors.engine.app import App, build, run
    from processors.engine.engine import Engine, Health

__all__ = [
    "TICK_KEY",
    "App",
    "Batch",
    "Effects",
    "Engine",
    "EngineError",
    "Health",
    "Limits",
    "Listener",
    "PlainSendForbiddenError",
    "Record",
    "RecordTooLargeError",
    "Routes",
    "Rules",
    "Sent",
    "Settings",
    "Source",
    "Step",
    "Table",
    "UndeclaredTopicError",
    "UnknownVersionError",
    "Writer",
    "build",
    "murmur2",
    "run",
]

_WITH_FAUST = {
    "App": "processors.engine.app",
    "build": "processors.engine.app",
    "run": "processors.engine.app",
    "Engine": "processors.engine.engine",
    "Health": "processors.engine.engine",
}


def __getattr__(name: str) -> Any:  # noqa: ANN401 - it stands for whatever is imported
    module = _WITH_FAUST.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module  # noqa: PLC0415 - only whoever needs Faust pays for it

    return getattr(import_module(module), name)
