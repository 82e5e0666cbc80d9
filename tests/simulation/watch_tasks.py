"""Book of the tasks: moves, tokens, one result, final is final, no deadline before its time."""

from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any

from schema.topics import Topic
from tests.faults.proof import ENDS, FINAL, STATUS_AFTER
from tests.simulation import policy

if TYPE_CHECKING:
    from tests.simulation.watch import Watch

Json = dict[str, Any]
_FROM: dict[str, set[str | None]] = {
    "task.created.v1": {None},
    "task.material_confirmed.v1": {"CREATED"},
    "task.wait_extended.v1": {"CREATED"},
    "task.queued.v1": {"CREATED", "QUEUED"},
    "task.moved.v1": {"QUEUED"},
    "task.started.v1": {"QUEUED"},
    "task.progressed.v1": {"RUNNING"},
    "task.storing.v1": {"RUNNING"},
    "task.requeued.v1": {"RUNNING"},
    "task.succeeded.v1": {"RUNNING"},
    "task.failed.v1": {"RUNNING"},
    "task.canceled.v1": {"CREATED", "QUEUED", "RUNNING"},
    "task.expired.v1": {"CREATED", "QUEUED"},
    "task.retried.v1": {"FAILED"},
}
_HEARD = ("task.created.v1", "task.material_confirmed.v1", "task.wait_extended.v1")
"""Each gives a task that waits for its material its time again."""
_OF_TOKEN = {
    "task.progressed.v1",
    "task.storing.v1",
    "task.requeued.v1",
    "task.succeeded.v1",
    "task.failed.v1",
}


def log_ms(at: str) -> int:
    """Log time of an event, in milliseconds."""
    return round(datetime.fromisoformat(at).timestamp() * 1000)


@dataclass(slots=True)
class Task:
    partition: int
    status: str | None = None
    seq: int = 0
    token: int = 0
    running: int | None = None
    results: int = 0
    reservation: str = ""
    charge: int | None = None
    """What its last end charges; None: not ended."""
    retries: int = 0
    losses: int = 0
    percent: int = 0
    delay_ms: int = 0
    at: dict[str, int] = field(default_factory=dict[str, int])
    """When the last event of each kind came."""


def _is_storing(task: Task) -> bool:
    """Whether its last attempt has told that its work is made."""
    return task.at.get("task.storing.v1", -1) >= task.at["task.started.v1"]


class TaskBook:
    def __init__(self, watch: "Watch") -> None:
        self._watch = watch
        self.tasks: dict[str, Task] = {}
        self.open = 0
        """Tasks that have not ended."""

    def follow(self, partition: int, event: Json) -> None:
        name, kind = event["task_id"], event["type"]
        task = self.tasks.get(name)
        if task is None:
            task = self.tasks[name] = Task(partition)
            self.open += 1
        demand, at = self._watch.demand, log_ms(event["at"])
        demand(task.status in _FROM[kind], f"task {name}: {kind} from {task.status}")
        if kind in _OF_TOKEN:
            token = event["token"]
            demand(
                token == task.running,
                f"task {name}: {kind} of token {token}, {task.running} is current",
            )
        self._judge(name, task, event, at)
        task.at[kind] = at
        task.seq = event["seq"]
        was_over = task.status in ENDS.values()
        if kind in STATUS_AFTER:
            task.status = STATUS_AFTER[kind]
        is_over = task.status in ENDS.values()
        self.open += was_over - is_over
        if kind in ENDS:
            self._watch.counts[STATUS_AFTER[kind]] += 1
            task.charge = event.get("charge_micros", 0)
        if kind in ENDS or kind == "task.requeued.v1":
            task.running = None

    def _judge(self, name: str, task: Task, event: Json, at: int) -> None:
        demand = self._watch.demand
        match event["type"]:
            case "task.created.v1":
                task.reservation = event["reservation_id"]
            case "task.retried.v1":
                task.reservation = event["reservation_id"]
                task.charge, task.retries, task.losses = None, 0, 0
            case "task.queued.v1" if task.delay_ms:
                self._not_before(name, task, "task.requeued.v1", at, task.delay_ms)
                task.delay_ms = 0
            case "task.started.v1":
                task.token += 1
                demand(
                    event["token"] == task.token, f"task {name}: token {event['token']} is not next"
                )
                task.running = event["token"]
            case "task.progressed.v1":
                demand(event["percent"] > task.percent, f"task {name}: its milestones fall")
                task.percent = event["percent"]
            case "task.requeued.v1":
                self._requeued(name, task, event, at)
            case "task.succeeded.v1":
                task.results += 1
                demand(task.results == 1, f"task {name}: {task.results} results")
                for file in event.get("files", ()):
                    prefix = f"results/{name}/{event['token']}/"
                    demand(
                        file["object_key"].startswith(prefix), f"task {name}: {file} is not its own"
                    )
            case "task.failed.v1" if event.get("loss") == "backstop":
                self._backstop(name, task, at)
                self._watch.counts["never_stored"] += _is_storing(task)
            case "task.expired.v1" if task.status == "CREATED":
                wait_ms = policy.CREATED_WAIT_SECONDS * 1000
                last = max((kind for kind in _HEARD if kind in task.at), key=task.at.__getitem__)
                self._not_before(name, task, last, at, wait_ms)
            case _:
                pass

    def _requeued(self, name: str, task: Task, event: Json, at: int) -> None:
        demand = self._watch.demand
        self._watch.counts[f"requeued:{event.get('loss') or event.get('failure')}"] += 1
        counted = event["counted"]
        task.delay_ms = event["delay_ms"]
        task.retries += counted
        task.losses += not counted and event.get("loss") != "preempted"
        demand(task.retries <= 2, f"task {name}: {task.retries} retries")
        demand(task.losses <= 5, f"task {name}: {task.losses} losses")
        if event.get("loss") == "backstop":
            self._backstop(name, task, at)
            demand(not _is_storing(task), f"task {name}: made again though it was being stored")
        else:
            demand(counted == ("failure" in event), f"task {name}: a loss burns no retry")

    def _backstop(self, name: str, task: Task, at: int) -> None:
        if _is_storing(task):
            self._not_before(name, task, "task.storing.v1", at, policy.STORING_SECONDS * 1000)
        else:
            seconds = policy.RUN_LIMIT_SECONDS + policy.BACKSTOP_SECONDS
            self._not_before(name, task, "task.started.v1", at, seconds * 1000)

    def _not_before(self, name: str, task: Task, since: str, at: int, wait_ms: int) -> None:
        served = self._watch.served[Topic.TASK_COMMANDS.value, task.partition]
        most = served.between(task.at[since], at)
        self._watch.demand(
            most >= wait_ms, f"task {name}: {most} of {wait_ms} ms were served since {since}"
        )

    # --- rows ------------------------------------------------------------------------------------

    def audit(self, number: int, rows: dict[str, tuple[str, int]]) -> None:
        demand = self._watch.demand
        for name, task in self.tasks.items():
            if task.partition != number:
                continue
            row = rows.get(name)
            if row is None:
                demand(task.status in ENDS.values(), f"task {name}: {task.status} has no row")
            else:
                told = (task.status, task.seq)
                demand(row == told, f"task {name}: its row says {row}, its events {told}")
        for name in rows.keys() - self.tasks.keys():
            demand(holds=False, words=f"task {name}: a row without an event")

    def close(self, accepted: set[str]) -> None:
        demand = self._watch.demand
        for name in sorted(accepted):
            task = self.tasks.get(name)
            status = None if task is None else task.status
            demand(status in ENDS.values(), f"task {name}: accepted, but {status}")
        for name, task in self.tasks.items():
            demand(name in accepted, f"task {name}: exists, but nobody was told so")
            demand(
                task.results == (task.status == "SUCCEEDED"),
                f"task {name}: {task.status} with {task.results} results",
            )

    @property
    def settled(self) -> bool:
        return self.open == 0


__all__ = ["FINAL", "Task", "TaskBook", "log_ms"]
