"""The job on stock Faust, in its best safe pattern: outputs acked, then changelog acked, then ack.

At least once and without fencing, so it already promises less. The order of its recovery is
repaired (clear the queues, then seek, then resume): as shipped it drops events.
"""

# Faust ships no types that hold; what it hands out is unknown, and stays so.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportUnknownParameterType=false
# pyright: reportPrivateUsage=false, reportUntypedBaseClass=false, reportMissingParameterType=false
# pyright: reportAttributeAccessIssue=false
# ruff: noqa: ANN401

import asyncio
import sys
import weakref
from typing import Any

import faust
import mode
import msgspec
import uvloop
from faust.streams import _current_event
from faust.tables.recovery import Recovery

from tests.benchmarks.engine import job

PARTITIONS = 2


class Row(msgspec.Struct):
    """The last offset makes an update idempotent."""

    offset: int
    state: job.State


_decode_row = msgspec.json.Decoder(Row).decode


class Options(msgspec.Struct, kw_only=True):
    prefix: str
    broker: str
    data: str


async def _on_recovery_completed(self: Any, generation_id: int = 0) -> None:
    app, consumer = self.app, self.app.consumer
    await app.on_rebalance_complete.send()
    self._set_recovery_ended()
    for table in self.tables.values():
        await table.on_recovery_completed(
            self.actives_for_table[table], self.standbys_for_table[table]
        )
    assignment = consumer.assignment()
    if app.consumer_generation_id != generation_id:
        return
    app.flow_control.resume()
    if assignment:
        await self._wait(consumer.perform_seek(), timeout=app.conf.broker_request_timeout)
        consumer.resume_partitions({tp for tp in assignment if not self._is_changelog_tp(tp)})
    self.completed.set()
    consumer.resume_flow()
    await app._fetcher.maybe_start()
    self.tables.on_actives_ready()
    self.tables.on_standbys_ready()
    app.on_rebalance_end()


class AckedTable(faust.Table[Any, Any]):
    """A table whose changelog records can be waited for."""

    def put_acked(self, event: Any, key: bytes, value: bytes) -> Any:
        _current_event.set(weakref.ref(event))
        future = self.send_changelog(self.partition_for_key(key), key, value)
        self.data[key] = value
        return future


def build(options: Options) -> Any:
    Recovery.on_recovery_completed = _on_recovery_completed  # type: ignore[method-assign]
    prefix = options.prefix
    app = faust.App(
        prefix,
        broker=f"kafka://{options.broker}",
        datadir=options.data,
        web_enabled=False,
        store="memory://",
        topic_partitions=PARTITIONS,
        topic_replication_factor=1,
        table_standby_replicas=0,
        topic_disable_leader=True,
        value_serializer="raw",
        key_serializer="raw",
        broker_session_timeout=10,
        broker_rebalance_timeout=10,
        broker_heartbeat_interval=1.0,
        agent_supervisor=mode.CrashingSupervisor,
        Table=AckedTable,
        producer_linger=0.002,
        producer_max_batch_size=131_072,
    )
    commands = app.topic(f"{prefix}-commands", key_type=bytes, value_type=bytes)
    events = app.topic(f"{prefix}-events", key_type=bytes, value_type=bytes)
    states = app.Table("state", key_type=bytes, value_type=bytes, partitions=PARTITIONS)

    async def handle(stream: Any) -> None:
        async for batch in stream.noack_take(1000, within=0.01):
            await _apply(batch, events, states)

    app.agent(commands)(handle)
    return app


async def _apply(batch: Any, events: Any, states: Any) -> None:
    changed: dict[bytes, tuple[Any, Row]] = {}
    sent: list[Any] = []
    for event in batch:
        key, offset = event.key, event.message.offset
        row = changed[key][1] if key in changed else _row(states, key)
        if offset <= row.offset:
            continue
        state = row.state
        for fact in job.decide(state, job.decode_command(event.value)):
            state = job.evolve(state, fact)
            sent.append(
                await events.send(
                    key=key, value=job.encode(fact), partition=event.message.partition
                )
            )
        changed[key] = (event, Row(offset, state))
    if sent:
        await asyncio.gather(*sent)
    stored = [
        states.put_acked(event, key, job.encode(row)) for key, (event, row) in changed.items()
    ]
    if stored:
        await asyncio.gather(*stored)
    for event in batch:
        event.ack()


def _row(states: Any, key: bytes) -> Row:
    raw = states.data.get(key)
    return _decode_row(raw) if raw else Row(-1, job.State())


def main(argument: str) -> None:
    options = msgspec.json.decode(argument, type=Options)
    asyncio.set_event_loop_policy(uvloop.EventLoopPolicy())  # pyright: ignore[reportDeprecated]
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    app = build(options)
    app.Worker(loop=loop, loglevel="info").execute_from_commandline()


if __name__ == "__main__":
    main(sys.argv[1])
