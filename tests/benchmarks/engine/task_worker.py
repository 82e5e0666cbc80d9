"""The real task decider on the engine: `python -m tests.benchmarks.engine.task_worker '{…}'`.

It reads task-commands only: what its decisions ask of pools and quotas is written, and not worked.
"""

import sys

import msgspec

from processors.engine import Settings, build, run
from processors.rules import OUTPUTS, CutlogRules
from processors.tables import Tables
from tests.benchmarks.engine.engine_worker import PARTITIONS, Options, log_lines
from tests.benchmarks.engine.task_job import SOURCES


def main(argument: str) -> int:
    log_lines()
    options = msgspec.json.decode(argument, type=Options)
    tables = Tables()
    app = build(
        Settings(
            broker=options.broker,
            app_id=options.prefix,
            partitions=PARTITIONS,
            changelog=f"{options.prefix}-state",
            journal=f"{options.prefix}-journal",
            data_directory=options.data,
            **options.extra,
        ),
        sources=SOURCES,
        tables=tables.all(),
        outputs=OUTPUTS,
        rules=CutlogRules(tables, PARTITIONS),
    )
    return run(app)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
