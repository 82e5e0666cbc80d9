"""What this instance hands out of results: counted at once, told to the log every few seconds."""

import asyncio
import logging
from collections import Counter
from typing import Final, NamedTuple
from uuid import uuid4

from api.asking import Asker
from api.measures import Measures
from api.problems import Problem
from api.reads import Row
from schema.commands import CountDeliveries, Delivery
from schema.ids import CommandId, TenantId
from schema.routes import route
from schema.wires.telemetry import facts
from schema.words import Scene

COUNT_SECONDS: Final = 10.0
DELIVERIES_MAX: Final = 200
"""Lines of one command: it stays far below what a message holds."""
_log = logging.getLogger(__name__)


class _Line(NamedTuple):
    """What is summed up together."""

    tenant_id: str
    scene: str
    cold: bool


class Deliveries:
    """What this instance hands out: metrics at once, and every few seconds a fact for the bill."""

    def __init__(self, asker: Asker, measures: Measures, instance: int) -> None:
        self._asker = asker
        self._measures = measures
        self._source = f"api-{instance}"
        self._start = uuid4().hex
        self._number = 0
        self._reads: Counter[_Line] = Counter()
        self._bytes: Counter[_Line] = Counter()
        self._unsent: CountDeliveries | None = None

    def count(self, row: Row) -> None:
        """The addresses of this result were handed out."""
        size = sum(file["size"] for file in row["files"] or [])
        cold = row["result_state"] == "cold"
        line = _Line(row["tenant_id"], row["scene"], cold)
        self._reads[line] += 1
        self._bytes[line] += size
        temperature = "cold" if cold else "hot"
        self._measures.results.labels(temperature).inc()
        self._measures.result_bytes.labels(temperature).inc(size)

    async def run(self) -> None:
        """Tell the log now and then, until canceled; what is left is told then."""
        try:
            while True:
                await asyncio.sleep(COUNT_SECONDS)
                await self.tell()
        finally:
            await self.tell()

    async def tell(self) -> None:
        """What was counted so far. What the log did not take is told again, as the same command."""
        while (command := self._unsent or self._next()) is not None:
            self._unsent = command
            try:
                await self._asker.tell(command, route(command, self._asker.partitions))
            except Problem as problem:
                _log.warning("deliveries are not counted yet", extra=facts(code=problem.code))
                return
            self._unsent = None

    def _next(self) -> CountDeliveries | None:
        lines = list(self._reads)[:DELIVERIES_MAX]
        if not lines:
            return None
        self._number += 1
        deliveries = tuple(
            Delivery(
                tenant_id=TenantId(line.tenant_id),
                scene=Scene(line.scene),
                cold=line.cold,
                reads=self._reads.pop(line),
                size=self._bytes.pop(line),
            )
            for line in lines
        )
        return CountDeliveries(
            command_id=CommandId(f"deliveries-{self._source}-{self._start}-{self._number}"),
            source=self._source,
            deliveries=deliveries,
        )
