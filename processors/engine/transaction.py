"""One Kafka transaction: outputs, changelog, journal, all or nothing."""

# aiokafka ships no types; what it hands out is unknown, and stays so.
# ruff: noqa: ANN401
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

import asyncio
from typing import Any, Final

from processors.engine.errors import RecordTooLargeError
from processors.engine.records import Headers
from processors.engine.writer import Effects

Place = tuple[str, int]

_NO_HEADERS: Final[list[tuple[str, bytes]]] = []
"""Most records have none, and aiokafka wants a list."""


class _Builders:
    """The record batches for one topic and partition, each as large as a broker takes."""

    def __init__(self, producer: Any, timestamp: int) -> None:
        self._producer = producer
        self._timestamp = timestamp
        self.batches: list[Any] = []
        self._append: Any
        self._next()

    def append(self, key: bytes | None, value: bytes | None, headers: Headers = ()) -> None:
        given = list(headers) if headers else _NO_HEADERS
        if self._append(timestamp=self._timestamp, key=key, value=value, headers=given) is None:
            self._next()
            if self._append(timestamp=self._timestamp, key=key, value=value, headers=given) is None:
                raise RecordTooLargeError("a record is larger than a batch")

    def _next(self) -> None:
        batch = self._producer.create_batch()
        self.batches.append(batch)
        self._append = batch.append


def build(producer: Any, effects: Effects, changelog: Place, journal: Place) -> dict[Place, Any]:
    """The batches of a transaction by place; blocks the loop, like the rules do."""
    built: dict[Place, _Builders] = {}

    def at(place: Place) -> _Builders:
        builders = built.get(place)
        if builders is None:
            builders = built[place] = _Builders(producer, effects.now)
        return builders

    for place, records in effects.sends.items():
        append = at(place).append
        for sent in records:
            append(sent.key, sent.value, sent.headers)
    append = at(changelog).append
    for row, changed in effects.changes.items():
        append(row, changed)
    at(journal).append(b"%d" % journal[1], effects.journal)
    return {place: builders.batches for place, builders in built.items()}


async def commit(producer: Any, batches: dict[Place, Any]) -> None:
    """Write and commit. Raises whatever went wrong; then nobody knows what the broker has.

    The first batch of every place is queued before anything is awaited: one AddPartitionsToTxn, and
    no produce while the coordinator is in a pending transition, which the broker answers with
    NOT_ENOUGH_REPLICAS. aiokafka commits happily over a failed batch: every future is looked at.
    """
    await producer.begin_transaction()
    sent = [
        await producer.send_batch(queue[0], topic, partition=partition)
        for (topic, partition), queue in batches.items()
    ]
    for (topic, partition), queue in batches.items():
        for batch in queue[1:]:
            sent.append(await producer.send_batch(batch, topic, partition=partition))  # noqa: PERF401
    await asyncio.gather(*sent)
    await producer.commit_transaction()
