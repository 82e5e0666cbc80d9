"""The proof: raw JSON of what is committed, against a fold written here. Imports no rules."""

# Records and JSON as they are.
# ruff: noqa: ANN401

import hashlib
import json
from typing import Any

from tests.processors.engine import kafka


async def violations(broker: str, prefix: str, partitions: int = 2) -> list[str]:
    """What is wrong with everything that an installation of the toy has committed; [] is right."""
    names = ("work", "notes", "events", "state", "journal")
    logs = {name: await kafka.read(broker, f"{prefix}-{name}", partitions) for name in names}
    found: list[str] = []
    followed: list[int] = []
    for number in range(partitions):
        log = {name: logs[name][number] for name in names}
        found += _journal(prefix, number, log)
        found += _fold(prefix, number, log)
        followed += [json.loads(record.value)["id"] for record in log["notes"]]
    sent = [
        json.loads(record.value)["id"]
        for number in range(partitions)
        for record in logs["work"][number]
        if record.key != b"\x00tick"
    ]
    if followed and sorted(followed) != sorted(sent):
        lost, doubled = set(sent) - set(followed), len(followed) - len(set(followed))
        found.append(f"follow-ups: {len(lost)} lost, {doubled} doubled")
    return found


def _journal(prefix: str, number: int, log: dict[str, list[Any]]) -> list[str]:
    """Ranges of each topic follow each other without hole or overlap, up to the stored position."""
    found: list[str] = []
    reached: dict[str, int] = {}
    now = 0
    for record in log["journal"]:
        entry = json.loads(record.value)
        if entry["now"] < now:
            found.append(f"p{number}: the journal's time goes back at {record.offset}")
        now = entry["now"]
        for part in entry["ranges"]:
            topic = part["topic"]
            if part["start"] != reached.get(topic, 0):
                found.append(
                    f"p{number}: {topic} goes on at {part['start']}, not {reached.get(topic, 0)}"
                )
            reached[topic] = part["end"]
    books = [json.loads(r.value) for r in log["state"] if r.key == b"\x00book"]
    stored = {t: p for t, p in (books[-1]["positions"] if books else {}).items() if p}
    if stored != reached:
        found.append(f"p{number}: positions {stored}, journal {reached}")
    for name in ("work", "notes"):
        ends = [r.offset for r in log[name] if r.key != b"\x00tick"]
        if ends and reached.get(f"{prefix}-{name}", 0) <= ends[-1]:
            found.append(f"p{number}: {name} was not read to its end")
    return found


def _fold(prefix: str, number: int, log: dict[str, list[Any]]) -> list[str]:
    """Events and rows are what the commands, in the order of the journal, make."""
    commands = {
        (f"{prefix}-{name}", record.offset): record
        for name in ("work", "notes")
        for record in log[name]
    }
    counters: dict[str, dict[str, Any]] = {}
    expected: list[dict[str, Any]] = []
    for record in log["journal"]:
        for part in json.loads(record.value)["ranges"]:
            for offset in range(part["start"], part["end"]):
                command = commands.get((part["topic"], offset))
                if command is not None and command.key != b"\x00tick":
                    expected.append(_apply(counters, command))
    events = [json.loads(record.value) for record in log["events"]]
    for event in events:
        event.pop("now")
    found: list[str] = []
    if events != expected:
        at = next(
            (i for i, (a, b) in enumerate(zip(events, expected, strict=False)) if a != b),
            min(len(events), len(expected)),
        )
        doubled = len(events) - len({(e["topic"], e["offset"]) for e in events})
        found.append(
            f"p{number}: {len(events)} events, {len(expected)} expected, {doubled} doubled; "
            f"the first difference is at {at}"
        )
    rows: dict[str, Any] = {}
    for record in log["state"]:
        if record.key.startswith(b"counter\x00"):
            rows[record.key[8:].decode()] = json.loads(record.value)
    for row in rows.values():
        row.pop("odd")
    if rows != counters:
        wrong = sum(rows.get(key) != counters.get(key) for key in {*rows, *counters})
        found.append(f"p{number}: {wrong} rows differ")
    return found


def _apply(counters: dict[str, dict[str, Any]], record: Any) -> dict[str, Any]:
    command, key = json.loads(record.value), record.key.decode()
    before = counters.get(key, {"n": 0, "total": 0, "chain": ""})
    text = f"{before['chain']}|{command['id']}".encode()
    after = {
        "n": before["n"] + 1,
        "total": before["total"] + command["n"],
        "chain": hashlib.blake2b(text, digest_size=6).hexdigest(),
    }
    counters[key] = after
    return {
        "cmd": command["id"],
        "kind": command["op"],
        "key": key,
        **after,
        "topic": record.topic,
        "offset": record.offset,
    }
