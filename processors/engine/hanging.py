"""Transactions that ended at their coordinator and not in every partition: they are ended there.

A broker that dies after it wrote down a commit, and before it wrote the markers into the
partitions, has to write them when it is back. Kafka 4.4 may forget to: while the broker starts, the
leader of a partition is a broker that is registered and not yet in service, which the coordinator
takes for "the partition was deleted". Such a transaction hangs: its records are committed and never
readable, until the next transaction of the same producer in that partition ends and takes them with
it. By then the owner has recovered without them and decided the same commands again.

So, around the fence: what the last transaction of a partition number came to is asked for before it
(the fence forgets it), and what then still stands open in a partition is ended accordingly. Between
the two nobody can begin another one: the fence has the only producer of that name.
"""

# aiokafka ships no types; what it hands out is unknown, and stays so.
# ruff: noqa: ANN401
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportUntypedBaseClass=false

import asyncio
import logging
from collections import defaultdict
from collections.abc import AsyncGenerator, Collection, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final, NamedTuple

from aiokafka import TopicPartition
from aiokafka.client import AIOKafkaClient
from aiokafka.errors import KafkaError
from aiokafka.protocol.coordination import FindCoordinatorRequest

from processors.engine import hanging_protocol as protocol
from processors.engine.errors import RecoveryError
from processors.engine.settings import Settings

log = logging.getLogger(__name__)

_COMMITTED: Final = "CompleteCommit"
_ABORTED: Final = "CompleteAbort"
_ENDING: Final = frozenset({"PrepareCommit", "PrepareAbort"})
_UNKNOWN_ID: Final = 105
_NOT_NOW: Final = frozenset({3, 5, 6, 14, 15, 16})
"""No leader, no coordinator, or one that is loading: asked again."""
_AGAIN_SECONDS: Final = 0.05


class Outcome(NamedTuple):
    """What the last transaction of a transactional id came to, in every partition that it wrote."""

    producer_id: int
    committed: bool


class Open(NamedTuple):
    """A transaction that stands open in a partition."""

    producer_epoch: int
    coordinator_epoch: int
    committed: bool
    producer_id: int
    topic: str
    partition: int


class _NotNowError(Exception):
    """Somebody else is to be asked, or the same one later."""


class Ends:
    """Asks coordinators and leaders. Errors: RecoveryError when they don't answer in time."""

    def __init__(self, settings: Settings, client: Any) -> None:
        self._client = client
        self._seconds = settings.request_seconds_max

    async def outcomes(self, transactional_ids: Collection[str]) -> list[Outcome]:
        """What became of the last transaction of each, unless it is open, or never was."""
        found = await asyncio.gather(*(self._outcome(name) for name in transactional_ids))
        return [outcome for outcome in found if outcome is not None]

    async def finish(self, outcomes: Collection[Outcome], partitions: Mapping[str, int]) -> int:
        """End what stands open of these in any partition of these topics; gives how many did."""
        if not outcomes:
            return 0
        committed = {outcome.producer_id: outcome.committed for outcome in outcomes}
        places = [(topic, n) for topic, count in partitions.items() for n in range(count)]
        found = await self._patiently(lambda: self._open(places, committed))
        for one in found:
            log.warning(
                "a transaction hung",
                extra={"topic": one.topic, "partition": one.partition, "committed": one.committed},
            )
        for one in found:
            await self._patiently(lambda one=one: self._end(one))
        return len(found)

    async def _outcome(self, transactional_id: str) -> Outcome | None:
        state = await self._patiently(lambda: self._describe(transactional_id))
        if state is None or state[2] not in {_COMMITTED, _ABORTED}:
            return None
        return Outcome(state[5], state[2] == _COMMITTED)

    async def _describe(self, transactional_id: str) -> Any:
        found = await self._client.send(
            self._client.get_random_node(), FindCoordinatorRequest(transactional_id, 1)
        )
        _check(found.error_code)
        answer = await self._send(
            found.coordinator_id, protocol.DescribeTransactionsRequest([transactional_id])
        )
        (state,) = answer.transaction_states
        if state[0] == _UNKNOWN_ID:
            return None
        _check(state[0])
        if state[2] in _ENDING:
            raise _NotNowError(state[2])
        return state

    async def _open(
        self, places: Collection[tuple[str, int]], committed: Mapping[int, bool]
    ) -> list[Open]:
        by_leader: dict[int, dict[str, list[int]]] = defaultdict(lambda: defaultdict(list))
        for topic, partition in places:
            by_leader[await self._leader(topic, partition)][topic].append(partition)
        found: list[Open] = []
        for leader, topics in by_leader.items():
            request = protocol.DescribeProducersRequest(
                [(topic, numbers, {}) for topic, numbers in topics.items()]
            )
            answer = await self._send(leader, request)
            for topic, answered, _ in answer.topics:
                for partition, error, _, producers, _ in answered:
                    _check(error)
                    found += [
                        Open(epoch, max(0, coordinator), committed[pid], pid, topic, partition)
                        for pid, epoch, _, _, coordinator, start, _ in producers
                        if start >= 0 and pid in committed
                    ]
        return found

    async def _end(self, one: Open) -> None:
        leader = await self._leader(one.topic, one.partition)
        marker: tuple[Any, ...] = (
            one.producer_id,
            one.producer_epoch,
            one.committed,
            [(one.topic, [one.partition], {})],
            one.coordinator_epoch,
            {},
        )
        answer = await self._send(leader, protocol.WriteTxnMarkersRequest([marker]))
        for _, topics, _ in answer.markers:
            for _, answered, _ in topics:
                for _, error, _ in answered:
                    _check(error)

    async def _leader(self, topic: str, partition: int) -> int:
        leader = self._client.cluster.leader_for_partition(TopicPartition(topic, partition))
        if leader is None or leader < 0:
            raise _NotNowError
        return int(leader)

    async def _send(self, node: int, request: Any) -> Any:
        if not await self._client.ready(node):
            raise _NotNowError
        return await self._client.send(node, request)

    async def _patiently(self, ask: Any) -> Any:
        """Ask until there is an answer; who leads and who coordinates is looked up anew."""
        last: Exception | None = None
        try:
            async with asyncio.timeout(self._seconds):
                while True:
                    try:
                        return await ask()
                    except (KafkaError, _NotNowError) as error:
                        last = error
                    await asyncio.sleep(_AGAIN_SECONDS)
                    await self._client.force_metadata_update()
        except TimeoutError:
            raise RecoveryError(
                f"whether a transaction hangs could not be told: {last!r}"
            ) from last


@asynccontextmanager
async def ends(settings: Settings, topics: Collection[str]) -> AsyncGenerator[Ends]:
    """A client of its own, which knows where these topics are."""
    client: Any = AIOKafkaClient(
        bootstrap_servers=settings.broker,
        client_id=f"{settings.app_id}-ends",
        request_timeout_ms=int(settings.request_seconds_max * 1000),
    )
    await client.bootstrap()
    try:
        await client.set_topics(topics)
        yield Ends(settings, client)
    finally:
        await client.close()


def _check(error: int) -> None:
    if error in _NOT_NOW:
        raise _NotNowError(f"error {error}")
    if error:
        raise RecoveryError(f"whether a transaction hangs could not be told: error {error}")
