"""The proof: raw JSON of the log and rows of the read model, and what must hold of them.

Imports nothing of ours: no message type, no decider, no fold. It reads what it reads as a stranger
with a JSON parser would. Every violation is one line that names the key.
"""

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

Json = dict[str, Any]

ENDS = {
    "task.succeeded.v1": "SUCCEEDED",
    "task.failed.v1": "FAILED",
    "task.canceled.v1": "CANCELED",
    "task.expired.v1": "EXPIRED",
}
STATUS_AFTER = ENDS | {
    "task.created.v1": "CREATED",
    "task.queued.v1": "QUEUED",
    "task.started.v1": "RUNNING",
    "task.requeued.v1": "QUEUED",
    "task.retried.v1": "QUEUED",
}
FINAL = {"SUCCEEDED", "CANCELED", "EXPIRED"}
EVENT_TOPICS = ("task-events", "quota-events", "pool-events", "material-events")


class RawRecord(NamedTuple):
    """One committed record as it stands in the log."""

    topic: str
    partition: int
    offset: int
    key: str
    value: bytes


class StoredBytes(NamedTuple):
    """An object as it was read."""

    size: int
    sha256: str


@dataclass
class Proof:
    """What was found. `sums` are figures for people, `violations` must be empty."""

    violations: list[str] = field(default_factory=list)
    sums: dict[str, int] = field(default_factory=dict)

    def demand(self, holds: bool, words: str) -> None:  # noqa: FBT001 - reads as: demand that …
        if not holds:
            self.violations.append(words)


def prove(
    log: Mapping[str, Sequence[RawRecord]],
    accepted: Iterable[str],
    rows: Mapping[str, Sequence[Json]] | None = None,
    objects: Mapping[str, StoredBytes] | None = None,
) -> Proof:
    """All checks. `log` in order within each partition; `accepted` are task ids that got a 202.

    `objects` is what a GET of each object gave that `result_keys` names; what is missing is absent.
    """
    proof = Proof()
    events = {topic: [json.loads(record.value) for record in log[topic]] for topic in EVENT_TOPICS}
    _sequences(proof, log, events)
    statuses = _tasks(proof, events["task-events"], set(accepted))
    _ledger(proof, events["quota-events"], statuses)
    _slots(proof, events["pool-events"])
    if rows is not None:
        _read_model(proof, statuses, events, rows)
    if objects is not None:
        _results(proof, events["task-events"], objects)
    proof.sums["dead_letters"] = len(log.get("dead-letters", ()))
    proof.sums["refusals"] = len(log.get("refusals", ()))
    return proof


def _sequences(
    proof: Proof, log: Mapping[str, Sequence[RawRecord]], events: Mapping[str, list[Json]]
) -> None:
    """No gap and no double in any key; no event id twice; a key stands in one partition."""
    for topic, found in events.items():
        last: dict[str, int] = {}
        place: dict[str, int] = {}
        ids: set[str] = set()
        for record, event in zip(log[topic], found, strict=True):
            key, seq = record.key, int(event["seq"])
            expected = last.get(key, 0) + 1
            proof.demand(seq == expected, f"{topic} {key}: seq {seq} where {expected} must follow")
            last[key] = seq
            proof.demand(
                place.setdefault(key, record.partition) == record.partition,
                f"{topic} {key}: stands in two partitions",
            )
            # Beats and their like share a command; its index makes the id unique.
            proof.demand(
                (identity := f"{key}/{event['event_id']}") not in ids,
                f"{topic} {key}: event {event['event_id']} twice",
            )
            ids.add(identity)
        proof.sums[topic] = len(found)


def _tasks(proof: Proof, events: list[Json], accepted: set[str]) -> dict[str, str]:
    """Accepted = ended; tokens rise by one; only the granted token ends a task; final is final."""
    status: dict[str, str] = {}
    token: dict[str, int] = defaultdict(int)
    running: dict[str, int | None] = {}
    results: dict[str, int] = defaultdict(int)
    for event in events:
        task, kind = event["task_id"], event["type"]
        before = status.get(task)
        proof.demand(before not in FINAL, f"task {task}: {kind} after {before}")
        match kind:
            case "task.created.v1":
                proof.demand(before is None, f"task {task}: created twice")
            case "task.started.v1":
                proof.demand(before == "QUEUED", f"task {task}: started from {before}")
                token[task] += 1
                proof.demand(
                    event["token"] == token[task],
                    f"task {task}: token {event['token']} granted, {token[task]} was next",
                )
                running[task] = event["token"]
            case "task.succeeded.v1":
                results[task] += 1
                proof.demand(
                    running.get(task) == event["token"],
                    f"task {task}: result of token {event['token']}, granted {running.get(task)}",
                )
                prefix = f"results/{task}/{event['token']}/"
                for file in event.get("files", ()):
                    proof.demand(
                        file["object_key"].startswith(prefix),
                        f"task {task}: result {file['object_key']} is not of its token",
                    )
            case "task.requeued.v1" | "task.progressed.v1" | "task.storing.v1":
                proof.demand(
                    running.get(task) == event["token"],
                    f"task {task}: {kind} of token {event['token']}, not of {running.get(task)}",
                )
            case _:
                pass
        if kind in STATUS_AFTER:
            status[task] = STATUS_AFTER[kind]
        if kind in ENDS or kind == "task.requeued.v1":
            running[task] = None
    for task in accepted:
        ended = status.get(task)
        proof.demand(ended in ENDS.values(), f"task {task}: accepted, but {ended}")
    for task, count in results.items():
        proof.demand(count == 1, f"task {task}: {count} results")
    proof.sums["accepted"] = len(accepted)
    proof.sums["tasks"] = len(status)
    for name in sorted(set(status.values())):
        proof.sums[name.lower()] = sum(1 for value in status.values() if value == name)
    # Not the task's fault: a policy with a low `losses_max` would end them so.
    proof.sums["failed_by_losses"] = sum(
        1
        for event in events
        if event["type"] == "task.failed.v1"
        and event["failure"] == "retries_spent"
        and event.get("loss")
    )
    return status


def result_keys(log: Mapping[str, Sequence[RawRecord]]) -> list[str]:
    """The objects that results of tasks name."""
    events = (json.loads(record.value) for record in log["task-events"])
    return [file["object_key"] for file in _result_files(events)]


def _result_files(events: Iterable[Json]) -> Iterator[Json]:
    for event in events:
        if event["type"] == "task.succeeded.v1":
            yield from event.get("files", ())


def _results(proof: Proof, events: list[Json], objects: Mapping[str, StoredBytes]) -> None:
    """What a result names is in the store, whole, and is what was made."""
    proof.sums["objects"] = 0
    for file in _result_files(events):
        key, promised = file["object_key"], StoredBytes(file["size"], file["sha256"])
        stored = objects.get(key)
        proof.demand(stored is not None, f"object {key}: not in the store")
        proof.demand(
            stored is None or stored == promised, f"object {key}: {stored}, promised {promised}"
        )
        proof.sums["objects"] += 1


@dataclass
class _Window:
    reserved: int = 0
    spent: int = 0

    @property
    def held(self) -> int:
        return self.reserved + self.spent


def _ledger(proof: Proof, events: list[Json], statuses: Mapping[str, str]) -> None:
    """At every reservation reserved + spent is within the limits; each is resolved exactly once."""
    users: dict[tuple[str, ...], _Window] = defaultdict(_Window)
    tenants: dict[tuple[str, ...], _Window] = defaultdict(_Window)
    open_: dict[tuple[str, str], Json] = {}
    resolved: set[tuple[str, str]] = set()
    for event in events:
        account, kind = event.get("account_id", ""), event["type"]
        match kind:
            case "quota.reserved.v1":
                key = (account, event["reservation_id"])
                proof.demand(
                    key not in open_ and key not in resolved, f"reservation {key}: made twice"
                )
                open_[key] = event
                user, tenant = _windows(users, tenants, event, event["month"]["start"])
                for window in (user, tenant):
                    window.reserved += event["amount_micros"]
                proof.demand(
                    user.held <= event["limit_micros"],
                    f"{event['user_id']}: {user.held} of {event['limit_micros']} at {event['at']}",
                )
                contract = event.get("contract_micros")
                proof.demand(
                    contract is None or tenant.held <= contract,
                    f"{account}: {tenant.held} of the contract's {contract} at {event['at']}",
                )
            case "quota.committed.v1" | "quota.released.v1":
                key = (account, event["reservation_id"])
                reserved = open_.pop(key, None)
                if reserved is None:
                    proof.violations.append(f"reservation {key}: {kind} without being open")
                    continue
                resolved.add(key)
                charged = event["amount_micros"] if kind == "quota.committed.v1" else 0
                proof.demand(
                    charged <= reserved["amount_micros"], f"reservation {key}: charged too much"
                )
                for window in _windows(users, tenants, event, event["month_start"]):
                    window.reserved -= reserved["amount_micros"]
                    window.spent += charged
            case _:
                pass
    for key, event in open_.items():
        status = statuses.get(event["task_id"])
        proof.demand(
            status in {"CREATED", "QUEUED", "RUNNING"},
            f"reservation {key}: still held, its task {event['task_id']} is {status}",
        )
    proof.sums["reservations"] = len(resolved) + len(open_)
    proof.sums["reservations_open"] = len(open_)
    proof.sums["spent_micros"] = sum(window.spent for window in users.values())


def _windows(
    users: dict[tuple[str, ...], _Window],
    tenants: dict[tuple[str, ...], _Window],
    event: Json,
    month: str,
) -> tuple[_Window, _Window]:
    account, scene = event["account_id"], event["scene"]
    return (
        users[account, event["user_id"], scene, month],
        tenants[account, scene, month],
    )


def _slots(proof: Proof, events: list[Json]) -> None:
    """A pool proposes a (task, token) once a wait; nobody holds more than the runner's slots.

    A task that moves may be proposed by both pools: the old one is refused. One that asked its pool
    again waits anew, where that has lost the runner that it had proposed.
    """
    proposed: set[tuple[str, str, int]] = set()
    since: set[tuple[str, str, int]] = set()
    slots: dict[tuple[str, str], int] = {}
    held: dict[tuple[str, str], set[tuple[str, str, int]]] = defaultdict(set)
    where: dict[tuple[str, str, int], tuple[str, str]] = {}
    for event in events:
        kind = event["type"]
        pool_id = event.get("pool_id", "")
        attempt = (pool_id, event.get("task_id", ""), int(event.get("token", 0)))
        match kind:
            case "pool.runner_registered.v1":
                runner = (event["runner_id"], event["incarnation_id"])
                slots[runner] = event["slots"]
            case "pool.enqueued.v1":
                since.discard((pool_id, attempt[1], attempt[2] + 1))
            case "pool.proposed.v1":
                runner = (event["runner_id"], event["incarnation_id"])
                proof.demand(attempt not in since, f"{attempt}: proposed twice")
                since.add(attempt)
                proposed.add(attempt)
                held[runner].add(attempt)
                where[attempt] = runner
                proof.demand(
                    len(held[runner]) <= slots.get(runner, 0),
                    f"runner {runner}: {len(held[runner])} of {slots.get(runner, 0)} slots",
                )
            case "pool.freed.v1" | "pool.refused.v1":
                held[where.get(attempt, ("", ""))].discard(attempt)
            case "pool.runner_gone.v1":
                held.pop((event["runner_id"], event["incarnation_id"]), None)
            case _:
                pass
    proof.sums["attempts"] = len(proposed)


def _read_model(
    proof: Proof,
    statuses: Mapping[str, str],
    events: Mapping[str, list[Json]],
    rows: Mapping[str, Sequence[Json]],
) -> None:
    """Every table says what the log says, no more and no less."""
    table = {row["task_id"]: row["status"] for row in rows["tasks"]}
    for task in statuses.keys() | table.keys():
        proof.demand(
            statuses.get(task) == table.get(task),
            f"task {task}: {statuses.get(task)} in the log, {table.get(task)} in the table",
        )
    told = sorted((row["task_id"], row["seq"], row["kind"]) for row in rows["task_events"])
    logged = sorted((e["task_id"], e["seq"], e["type"]) for e in events["task-events"])
    proof.demand(told == logged, f"task_events has {len(told)} rows, the log {len(logged)} events")
    balances: dict[tuple[str, ...], _Window] = defaultdict(_Window)
    amounts: dict[str, int] = {}
    for event in events["quota-events"]:
        match event["type"]:
            case "quota.reserved.v1":
                amounts[event["reservation_id"]] = event["amount_micros"]
                balances[_balance(event)].reserved += event["amount_micros"]
            case "quota.committed.v1":
                balances[_balance(event)].reserved -= amounts[event["reservation_id"]]
                balances[_balance(event)].spent += event["amount_micros"]
            case "quota.released.v1":
                balances[_balance(event)].reserved -= amounts[event["reservation_id"]]
            case _:
                pass
    shown: dict[tuple[str, ...], _Window] = defaultdict(_Window)
    for row in rows["quota_windows"]:
        if row["kind"] == "month" and row["user_id"]:
            window = shown[row["account_id"], row["user_id"], row["scene"]]
            window.reserved += row["reserved_micros"]
            window.spent += row["spent_micros"]
    for key in balances.keys() | shown.keys():
        proof.demand(
            balances[key] == shown[key],
            f"quota of {key}: {balances[key]} in the log, {shown[key]} in the table",
        )


def _balance(event: Json) -> tuple[str, ...]:
    return event["account_id"], event["user_id"], event["scene"]
