"""A whole installation under the api's tests, and a caller who knows how to ask it."""

import json
import time
from collections.abc import Iterator
from http import HTTPStatus
from pathlib import Path
from typing import Any, NamedTuple, TypeVar
from uuid import uuid4

import httpx

from api.consistency import ConsistencyTokens
from cutlog.installation import LOCAL_POLICY, Installation, Plan, RunnerPlan
from cutlog.up import Up
from schema.codec import MATERIAL_COMMANDS
from schema.commands import MaterialCommand
from schema.ids import NO_TENANT, TaskId, TenantId, UserId, pseudonym, task_id_of, user_partition
from schema.settings import load, need
from schema.topics import Topic
from schema.wires.log import LogReader, Place
from tests.support.midnight import keep_clear_of_midnight

C = TypeVar("C", bound=MaterialCommand)

PATIENCE_SECONDS = 60
REHEARSAL = {"scene": "rehearsal", "parameters": {"no_op": True}}
SLOW_PER_MINUTE = 3
STORE_SECRET = "the-secret-of-the-door-of-the-store"


def write_policy(path: Path) -> Path:
    """The local policy with short delays, and a tier that may submit little in a minute."""
    policy = json.loads(LOCAL_POLICY.read_bytes())
    policy["retries"] = {"delays_ms": [100, 200], "loss_delay_ms": 200, "losses_max": 50}
    policy["tiers"]["slow"] = {
        "lane": "p1",
        "limits": {
            "rehearsal": {
                "per_minute": SLOW_PER_MINUTE,
                "per_day": 1_000,
                "credits_month_micros": 1_000_000_000,
            }
        },
    }
    path.write_text(json.dumps(policy))
    return path


class Seen(NamedTuple):
    """One event of a stream."""

    id: str
    name: str
    data: dict[str, Any]


class System:
    """An installation that is up, and its secrets."""

    def __init__(self, installation: Installation, up: Up) -> None:
        self.installation = installation
        self.up = up
        environ = installation.environ()
        self.tokens = ConsistencyTokens(environ["CUTLOG_KEYS_CONSISTENCY_SECRET"])
        self._secret = environ["CUTLOG_KEYS_PSEUDONYM_SECRET"].encode()
        self.partitions = installation.plan.partitions
        self._callers: list[Caller] = []

    def caller(self, *, tier: str = "load", tenant: str = "", scope: str = "") -> "Caller":
        """A new user."""
        return self.known_caller(f"user {uuid4().hex}", tier=tier, tenant=tenant, scope=scope)

    def known_caller(self, sub: str, *, tier: str, tenant: str, scope: str = "") -> "Caller":
        """A user of this name."""
        keep_clear_of_midnight()
        made = Caller(self, sub, tier=tier, tenant=tenant, scope=scope)
        self._callers.append(made)
        return made

    def token(self, task_id: str, seq: int) -> str:
        """A consistency token."""
        return self.tokens.sign(TaskId(task_id), seq)

    def stop(self) -> None:
        """Stop everything."""
        for caller in self._callers:
            caller.http.close()
        self.up.stop()

    def pseudonym(self, tenant: str, sub: str) -> UserId:
        return pseudonym(self._secret, TenantId(tenant), sub)


class Caller:
    """One user with a token."""

    def __init__(self, system: System, sub: str, *, tier: str, tenant: str, scope: str) -> None:
        self.system = system
        self.tenant = tenant
        self.sub = sub
        self.user_id = system.pseudonym(tenant, sub)
        token = system.installation.token(sub, tier=tier, tenant=tenant, scope=scope)
        self.http = httpx.Client(
            base_url=system.up.api_url,
            headers={"Authorization": f"Bearer {token}"},
            timeout=60,
        )

    def task_id(self, key: str) -> TaskId:
        """The task that a key names."""
        tenant_id = TenantId(self.tenant) if self.tenant else NO_TENANT
        return task_id_of(tenant_id, self.user_id, key)

    def post(self, body: dict[str, Any], key: str | None = None) -> httpx.Response:
        """A submission."""
        return self.http.post(
            "/v1/tasks", json=body, headers={"Idempotency-Key": key or uuid4().hex}
        )

    def submit(self, key: str | None = None, **parameters: Any) -> str:  # noqa: ANN401
        """A rehearsal that is taken; its task."""
        answer = self.post({"scene": "rehearsal", "parameters": parameters}, key)
        assert answer.status_code == 202, answer.text
        return str(answer.json()["task_id"])

    def get(self, task_id: str, seq: int | None = None) -> dict[str, Any]:
        """A task, not older than `seq`."""
        headers = {}
        if seq is not None:
            headers["Cutlog-Consistency"] = self.system.token(task_id, seq)
        found: dict[str, Any] = self.http.get(f"/v1/tasks/{task_id}", headers=headers).json()
        return found

    def until(self, task_id: str, *statuses: str, seq: int = 0) -> dict[str, Any]:
        """The task once it stands in one of these after `seq`, told by the long poll."""
        end = time.monotonic() + PATIENCE_SECONDS
        token = self.system.token(task_id, seq)
        while time.monotonic() < end:
            answer = self.http.get(
                f"/v1/tasks/{task_id}/wait", params={"after": seq, "consistency": token}
            )
            if answer.status_code == HTTPStatus.SERVICE_UNAVAILABLE:
                continue  # the read model has not come to what we were promised
            assert answer.status_code == HTTPStatus.OK, answer.text
            found = answer.json()
            task: dict[str, Any] = found["task"]
            if task["status"] in statuses:
                return task
            assert not found["ended"], task
            seq = max([seq, *(event["seq"] for event in found["events"])])
        raise AssertionError(f"{task_id} does not come to {statuses}")

    def stream(
        self, path: str, last: str | None = None, *, stored_max: int | None = None
    ) -> list[Seen]:
        """A stream until it ends, or until so many stored events; None of them on a 204."""
        seen: list[Seen] = []
        for event in self.follow(path, last):
            seen.append(event)
            if stored_max is not None and len(stored(seen)) >= stored_max:
                break
        return seen

    def follow(self, path: str, last: str | None = None) -> Iterator[Seen]:
        """A stream as it comes."""
        headers = {} if last is None else {"Last-Event-ID": last}
        with self.http.stream("GET", path, headers=headers) as answer:
            if answer.status_code == 204:
                return
            assert answer.status_code == 200, answer.read()
            assert answer.headers["content-type"].startswith("text/event-stream")
            assert answer.headers["x-accel-buffering"] == "no"
            yield from parse(answer.iter_lines())

    def status_of_stream(self, path: str, last: str) -> int:
        """The status that a client with this cursor gets; the stream itself is not read."""
        with self.http.stream("GET", path, headers={"Last-Event-ID": last}) as answer:
            return answer.status_code


def parse(lines: Iterator[str]) -> Iterator[Seen]:
    """The events of a stream."""
    fields: dict[str, str] = {}
    for line in lines:
        if line.startswith(":"):
            continue
        if line:
            name, _, value = line.partition(": ")
            fields[name] = value
            continue
        if "data" in fields:
            yield Seen(fields.get("id", ""), fields["event"], json.loads(fields["data"]))
        fields = {}


def stored(seen: list[Seen]) -> list[Seen]:
    """The stored events among them."""
    return [event for event in seen if event.id]


def start_system(directory: Path) -> System:
    """One processor worker, one runner for rehearsals, everything else as `cutlog up` starts it."""
    plan = Plan(
        runners=(RunnerPlan("R", 16),),
        policy=write_policy(directory / "policy.json"),
        environ={"CUTLOG_API_STORE_NOTIFICATIONS_SECRET": STORE_SECRET},
    )
    installation = Installation(directory / "cutlog", plan=plan, die_with_parent=True)
    up = Up(installation)
    up.start()
    return System(installation, up)


async def material_commands(system: System, owner_id: str, kind: type[C]) -> list[C]:
    """What the log has of one kind of command in the partition of this user or material."""
    kafka = need(load(system.installation.environ()), "kafka")
    place = Place(Topic.MATERIAL_COMMANDS, user_partition(owner_id, kafka.partitions))
    found: list[C] = []
    async with LogReader(kafka, [place]) as reader:
        await reader.seek_to_beginning()
        end = (await reader.ends())[place]
        while reader.positions[place] < end:
            for batch in await reader.read():
                commands = [
                    MATERIAL_COMMANDS.decode(record.value or b"") for record in batch.records
                ]
                found += [one for one in commands if isinstance(one, kind)]
    return found
