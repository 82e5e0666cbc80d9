"""The log's wires: topics made and checked, records appended in batches, records read in order.

`LogWriter` gathers what is appended within a few milliseconds into one batch a partition: one
produce a batch, one future an append. `LogReader` reads committed records of partitions that it is
told, with positions that step over the markers of transactions. The processors have an engine of
their own and use neither; everybody else uses both.
"""

from schema.wires.log.places import (
    Appended,
    Headers,
    LogBatch,
    LogUnavailableError,
    MessageTooLongError,
    OffsetTrimmedError,
    Place,
    Record,
    TopologyError,
)
from schema.wires.log.reading import LogReader
from schema.wires.log.starting import start
from schema.wires.log.topology import check_topics, cluster_id, create_topics
from schema.wires.log.writing import LogWriter

__all__ = [
    "Appended",
    "Headers",
    "LogBatch",
    "LogReader",
    "LogUnavailableError",
    "LogWriter",
    "MessageTooLongError",
    "OffsetTrimmedError",
    "Place",
    "Record",
    "TopologyError",
    "check_topics",
    "cluster_id",
    "create_topics",
    "start",
]
