"""Whoever recovers from the changelog goes on as if nothing had been: at any cut, byte for byte."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest

from processors.engine import Batch, Effects, Record, Routes, Sent, Writer
from processors.rules import OUTPUTS, SOURCES, CutlogRules
from processors.tables import Tables
from tests.simulation.simulation import Simulation

RANK = {str(source.topic): source.rank for source in SOURCES}
Changelog = dict[bytes, bytes]


class Written(NamedTuple):
    """What a transaction wrote, in a form that compares."""

    sends: dict[tuple[str, int], list[Sent]]
    changes: dict[bytes, bytes | None]
    journal: bytes


def recovered(partitions: int, number: int, changelog: Changelog) -> Writer:
    """A new process: nothing but the changelog, its keys in another order than written."""
    tables = Tables()
    outputs = {str(topic): partitions for topic in OUTPUTS}
    writer = Writer(
        number,
        partitions=partitions,
        sources=SOURCES,
        tables=tables.all(),
        rules=CutlogRules(tables, partitions),
        routes=Routes(outputs),
    )
    for key in sorted(changelog, reverse=True):
        writer.load(key, changelog[key])
    writer.loaded()
    if not writer.positions:
        writer.positions = {source.topic: 0 for source in SOURCES}
    return writer


def inputs(simulation: Simulation, number: int, size: int) -> list[list[Record]]:
    """Every command of a partition in the order of time, some at a time."""
    found = [
        record
        for (topic, partition), records in simulation.log.records.items()
        if partition == number and topic in RANK
        for record in records
    ]
    found.sort(key=lambda one: (one.timestamp, RANK[one.topic], one.offset))
    return [found[start : start + size] for start in range(0, len(found), size)]


def work(writer: Writer, records: list[Record], *, force: bool) -> Effects | None:
    """One transaction."""
    writer.release()
    for topic in sorted({record.topic for record in records}, key=RANK.__getitem__):
        batch: list[Any] = [record for record in records if record.topic == topic]
        start = writer.positions[topic]
        again = [record for record in batch if record.offset >= start]
        if again:
            writer.apply(Batch(topic, writer.number, again, start, again[-1].offset + 1))
    writer.more_due.clear()
    return writer.take(force=force)


def keep(changelog: Changelog, effects: Effects) -> None:
    for key, value in effects.changes.items():
        if value is None:
            changelog.pop(key, None)
        else:
            changelog[key] = value


def written(effects: Effects) -> Written:
    return Written(effects.sends, dict(sorted(effects.changes.items())), effects.journal)


@pytest.fixture(scope="module", params=[11, 12, 17])
def history(request: pytest.FixtureRequest) -> Simulation:
    """What stands on the log after a simulation with everything in it."""
    simulation = Simulation(request.param, tasks=50, violations_max=1)
    assert simulation.run().violations == []
    return simulation


def whole(
    simulation: Simulation, number: int, chunks: list[list[Record]]
) -> Iterator[tuple[Changelog, Written]]:
    """For each transaction, the changelog before it and what it wrote."""
    changelog: Changelog = {}
    writer = recovered(simulation.log.partitions, number, changelog)
    for chunk in chunks:
        before = dict(changelog)
        effects = work(writer, chunk, force=True)
        assert effects is not None
        keep(changelog, effects)
        yield before, written(effects)


def test_at_any_cut_a_new_process_writes_what_the_old_one_would_have(history: Simulation) -> None:
    for number in range(history.log.partitions):
        chunks = inputs(history, number, size=60)
        told = list(whole(history, number, chunks))
        assert sum(len(one.sends) for _, one in told) > 30
        for cut in range(0, len(chunks), max(len(chunks) // 9, 1)):
            writer = recovered(history.log.partitions, number, told[cut][0])
            for chunk, (_, wanted) in zip(chunks[cut:], told[cut:], strict=True):
                effects = work(writer, chunk, force=True)
                assert effects is not None
                assert written(effects) == wanted


def test_a_crash_between_transactions_of_any_size_changes_no_fact(history: Simulation) -> None:
    """Positions that ride with the next transaction are read again; what they did, was nothing."""
    number = 0
    chunks = inputs(history, number, size=7)
    steady: list[tuple[tuple[str, int], Sent]] = []
    shaken: list[tuple[tuple[str, int], Sent]] = []
    for sends, crash in ((steady, 0), (shaken, 13)):
        changelog: Changelog = {}
        writer = recovered(history.log.partitions, number, changelog)
        for turn, chunk in enumerate(chunks, start=1):
            effects = work(writer, chunk, force=False)
            if effects is not None:
                keep(changelog, effects)
                sends += [(place, one) for place, many in effects.sends.items() for one in many]
            if crash and turn % crash == 0:
                writer = recovered(history.log.partitions, number, changelog)
                for missed in chunks[:turn]:  # what was read and not written is fetched anew
                    if any(record.offset >= writer.positions[record.topic] for record in missed):
                        again = work(writer, missed, force=False)
                        assert again is None or not again.sends
    assert shaken == steady


def test_every_row_is_read_back_as_what_it_was(history: Simulation) -> None:
    for number in range(history.log.partitions):
        writer = history.cluster.writer(number)
        assert writer is not None
        tables = history.cluster.process_of(number).tables
        again = recovered(history.log.partitions, number, history.cluster.changelogs[number])
        for mine, other in zip(tables.all(), again.rows.tables, strict=True):
            assert dict(writer.rows.items(mine)) == dict(again.rows.items(other))
        assert again.positions.keys() == writer.positions.keys()
