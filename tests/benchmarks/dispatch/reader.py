"""A reader of committed records outside of the platform, that notes when each arrived."""

import asyncio
import threading
import time
from typing import NamedTuple

from schema.settings import Kafka
from schema.topics import Topic, pool_partition
from schema.wires.log import LogReader, Place, Record

POOL = "R"
_WAIT_SECONDS = 0.2
_START_SECONDS_MAX = 30


class Arrival(NamedTuple):
    """A record, and when the reader had it (milliseconds since the epoch)."""

    place: Place
    record: Record
    at_ms: float


class Reader:
    """Reads the pool's commands and events and all events of tasks, in a thread of its own.

    Nothing is decoded while it reads: that would delay what arrives meanwhile.
    """

    def __init__(self, kafka: Kafka) -> None:
        number = pool_partition(POOL, kafka.partitions)
        self._kafka = kafka
        self._places = [
            Place(Topic.POOL_COMMANDS.value, number),
            Place(Topic.POOL_EVENTS.value, number),
            *(Place(Topic.TASK_EVENTS.value, one) for one in range(kafka.partitions)),
        ]
        self._arrivals: list[Arrival] = []
        self._reads = threading.Event()
        self._ending = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._read()), daemon=True)

    def start(self) -> None:
        """Returns when it reads."""
        self._thread.start()
        if not self._reads.wait(_START_SECONDS_MAX):
            raise TimeoutError

    def stop(self) -> list[Arrival]:
        """Everything that has arrived, in that order."""
        self._ending.set()
        self._thread.join()
        return self._arrivals

    async def _read(self) -> None:
        async with LogReader(self._kafka, self._places, client_id="bench-dispatch") as reader:
            await reader.seek_to_end()
            self._reads.set()
            while not self._ending.is_set():
                batches = await reader.read(_WAIT_SECONDS)
                now = time.time() * 1000
                for batch in batches:
                    self._arrivals += [
                        Arrival(batch.place, record, now) for record in batch.records
                    ]
