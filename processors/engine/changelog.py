"""Recovery: the changelog of the newly owned partitions is read to its end, committed records only.

It runs after the fence, so nobody else can append and no transaction is open: the end stands still.
"""

# aiokafka ships no types; what it hands out is unknown, and stays so.
# ruff: noqa: ANN401
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

from aiokafka import TopicPartition

from processors.engine.clients import close_quietly, reader
from processors.engine.settings import Settings
from processors.engine.writer import Writer


async def recover(
    settings: Settings, writers: Mapping[int, Writer], moved: Callable[[], None]
) -> int:
    """Fill the writers; gives the number of records read, and calls `moved` while it gets on."""
    if not writers:
        return 0
    consumer = reader(settings)
    await consumer.start()
    try:
        return await _read(settings, consumer, writers, moved)
    finally:
        await close_quietly(consumer)


async def _read(
    settings: Settings, consumer: Any, writers: Mapping[int, Writer], moved: Callable[[], None]
) -> int:
    places = {TopicPartition(settings.changelog, n): writer for n, writer in writers.items()}
    consumer.assign(list(places))
    begin: dict[Any, int] = await consumer.beginning_offsets(list(places))
    end: dict[Any, int] = await consumer.end_offsets(list(places))
    for place in places:
        consumer.seek(place, begin[place])
    todo = {place for place in places if begin[place] < end[place]}
    count = 0
    while todo:
        fetched = await consumer.getmany(timeout_ms=200, max_records=20_000)
        for place, records in fetched.items():
            load = places[place].load
            for record in records:
                load(record.key, record.value)
            count += len(records)
        before = len(todo)
        for place in tuple(todo):
            # position() also moves over control markers and aborted batches
            if await consumer.position(place) >= end[place]:
                todo.discard(place)
        if fetched or len(todo) != before:
            moved()
        await asyncio.sleep(0)
    for writer in writers.values():
        writer.loaded()
    return count
