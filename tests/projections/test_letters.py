"""Dead letters and what becomes of them; what failed, as objects that outlive the log."""

import asyncio
import base64
import json
import logging
from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from api import queries
from api.reads import ReadModel
from projections import process
from projections.failures import PAGE, TOO_DEEP
from projections.projector import connect
from schema import events as e
from schema.codec import encode
from schema.commands import Origin, SubmitTask
from schema.failures import FailureClass
from schema.ids import CommandId, EventId, TaskId, TraceId, user_partition
from schema.objects import failure_key, letter_key
from schema.replies import DeadLetter, KeyReleased
from schema.settings import Postgres
from schema.topics import Topic
from schema.wires.objects import ObjectStore
from tests.projections.checking import check_fold, projecting
from tests.projections.conftest import Ground
from tests.projections.histories import NOON, History, Placed

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]
NOBODY = "http://127.0.0.1:9"
KEY = "task/x"
DAY = "2026-03-02"


def letter(
    number: int,
    *,
    key: str = KEY,
    replaces: str = "",
    value: bytes = b"{}",
    cause: str = "BrokenError: x",
) -> Placed:
    poison = DeadLetter(
        letter_id=f"task-commands/0/{number}",
        at=NOON,
        topic="task-commands",
        partition=0,
        offset=number,
        key=b"x",
        value=value,
        cause=cause,
        quarantined_key=key,
        replaces=replaces,
    )
    return Topic.DEAD_LETTERS, 0, poison.letter_id, poison


def released(letter_id: str = "", *, key: str = KEY, discarded: bool = False) -> Placed:
    fact = KeyReleased(
        command_id=CommandId(f"release-{letter_id}-{discarded}"),
        at=NOON + timedelta(hours=1),
        key=key,
        letter_id=letter_id,
        redriven=bool(letter_id) and not discarded,
        discarded=discarded,
        who="anna",
        why="the code is mended",
    )
    return Topic.DEAD_LETTERS, 0, key, fact


async def states(ground: Ground) -> dict[str, tuple[str, str | None]]:
    rows = await ground.rows("SELECT letter_id, state, who FROM dead_letters")
    return {row["letter_id"].rpartition("/")[2]: (row["state"], row["who"]) for row in rows}


async def parked(ground: Ground) -> list[tuple[str, str]]:
    rows = await ground.rows("SELECT key, letter_id FROM parked_keys ORDER BY key")
    return [(row["key"], row["letter_id"]) for row in rows]


# --- letters --------------------------------------------------------------------------------------


async def test_a_key_stands_among_the_parked_until_it_is_released(ground: Ground) -> None:
    async with projecting(ground):
        await ground.write([letter(1), letter(2, key="task/y")])
        await ground.applied()
        assert [key for key, _ in await parked(ground)] == ["task/x", "task/y"]
        await ground.write([released()])
        await ground.applied()
        assert await parked(ground) == [("task/y", "task-commands/0/2")]
        assert await states(ground) == {"1": ("open", None), "2": ("open", None)}
        await ground.write([released(), released(key="nothing")])
        await ground.applied()
        assert len(await parked(ground)) == 1


async def test_what_is_poison_again_holds_its_key_and_takes_the_place_of_its_letter(
    ground: Ground,
) -> None:
    """A release that fails leaves a letter and nothing else."""
    async with projecting(ground):
        await ground.write([letter(1), letter(2, replaces="task-commands/0/1")])
        await ground.applied()
        assert await states(ground) == {"1": ("replaced", None), "2": ("open", None)}
        assert await parked(ground) == [(KEY, "task-commands/0/2")]
        # Released, and the next command behind it is poison in the same transaction.
        await ground.write([released("task-commands/0/2"), letter(3)])
        await ground.applied()
        assert await states(ground) == {
            "1": ("replaced", None),
            "2": ("redriven", "anna"),
            "3": ("open", None),
        }
        assert await parked(ground) == [(KEY, "task-commands/0/3")]


async def test_no_word_of_what_broke_stops_the_read_models(ground: Ground) -> None:
    """What cannot be read is quoted in its letter, and a NUL is JSON but no text of Postgres."""
    why = "UnreadableMessageError: Invalid value 'ta\0sk.yield.v1' - at `$.type`"
    life = Life(ground, "nul")
    failed = life.spent()
    failed[-1] = (*failed[-1][:3], msgspec.structs.replace(failed[-1][3], message="bad \0 header"))
    async with projecting(ground):
        await ground.write([letter(1, key="task/\0", cause=why), *failed, letter(2, key="")])
        await ground.applied()
        await archived(ground, "alerts")
        assert await parked(ground) == [("task/␀", "task-commands/0/1")]
        await ground.write([released("task-commands/0/1", key="task/\0")])
        await ground.applied()
    assert await states(ground) == {"1": ("redriven", "anna"), "2": ("open", None)}
    assert await parked(ground) == []
    causes = await ground.rows("SELECT cause FROM dead_letters WHERE quarantined_key <> ''")
    assert [row["cause"] for row in causes] == [why.replace("\0", "␀")]
    tasks = await ground.rows("SELECT message FROM tasks")
    assert [row["message"] for row in tasks] == ["bad ␀ header"]


async def test_the_first_word_on_a_letter_counts(ground: Ground) -> None:
    async with projecting(ground):
        await ground.write(
            [
                letter(1),
                released("task-commands/0/1", discarded=True),
                released("task-commands/0/1"),
                released("task-commands/0/1", discarded=True),
            ]
        )
        await ground.applied()
    assert await states(ground) == {"1": ("discarded", "anna")}


async def test_letters_are_found_by_each_of_their_ids_and_no_other_is_looked_at(
    ground: Ground,
) -> None:
    """However many there are: an operator who is waited for asks for one."""
    life = Life(ground, "asked")
    of_task = msgspec.structs.replace(letter(9)[3], letter_id="x/0/9", task_id=life.task_id)
    async with projecting(ground):
        await ground.write(life.spent())
        await ground.write([letter(number) for number in range(200)])
        own = (Topic.DEAD_LETTERS, life.partition, life.task_id, of_task)
        await ground.write([life.letter(), own])
        await ground.applied()
    spent = life.letter()[3].letter_id
    reads = ReadModel(Postgres(dsn=ground.dsn))
    try:
        found = {
            of: [row["letter_id"] for row in await reads.letters(of, None, 9)]
            for of in (spent, "x/0/9", life.task_id, "trace-1", "nothing")
        }
    finally:
        await reads.close()
    both = sorted([spent, "x/0/9"], reverse=True)
    assert found == {
        spent: [spent],
        "x/0/9": ["x/0/9"],
        life.task_id: both,
        "trace-1": both,
        "nothing": [],
    }
    explained = await ground.rows(
        f"EXPLAIN (ANALYZE, FORMAT JSON) {_filled(queries.LETTERS_OF, life.task_id)}"
    )
    (plan,) = json.loads(explained[0]["QUERY PLAN"])
    assert 0 < sum(_looks(plan["Plan"], "tasks")) <= 2 * 2


def _filled(query: str, of: str) -> str:
    """With its parameters in it."""
    return query.replace("$1", f"'{of}'").replace("$2", "NULL").replace("$3", "9")


def _looks(node: dict[str, Any], table: str) -> Iterator[int]:
    """How often each scan of a table's partitions was begun."""
    if str(node.get("Relation Name", "")).rstrip("_0123456789") == table:
        yield node["Actual Loops"]
    for below in node.get("Plans", ()):
        yield from _looks(below, table)


# --- failures -------------------------------------------------------------------------------------


class Life:
    """Events of one task."""

    def __init__(self, ground: Ground, name: str) -> None:
        user = History(1).users[0]
        self.user_id = user
        self.task_id = TaskId(f"{name:0<26}"[:26] + user[-6:])
        self.partition = user_partition(self.task_id, ground.kafka.partitions)
        self.seq = 0

    def __call__(self, kind: type[e.OfTask], **fields: Any) -> Placed:  # noqa: ANN401
        self.seq += 1
        event = kind(
            event_id=EventId(f"{self.task_id}-{self.seq}.0"),
            seq=self.seq,
            at=NOON + timedelta(seconds=self.seq),
            task_id=self.task_id,
            user_id=self.user_id,
            **fields,
        )
        return Topic.TASK_EVENTS, self.partition, self.task_id, event

    def created(self) -> Placed:
        _, partition, key, made = next(
            one for one in History(1).take(5) if isinstance(one[3], e.TaskCreated)
        )
        origin = msgspec.structs.replace(
            made.origin,
            user_id=self.user_id,
            trace_id=TraceId("trace-1"),
            private=b"sealed for its user",
        )
        self.seq += 1
        event = msgspec.structs.replace(
            made, task_id=self.task_id, user_id=self.user_id, seq=1, at=NOON, origin=origin
        )
        del partition, key
        return Topic.TASK_EVENTS, self.partition, self.task_id, event

    def tried(self, token: int) -> list[Placed]:
        place: dict[str, Any] = {"pool_id": "A", "runner_id": f"gpu-{token}"}
        return [
            self(e.TaskQueued, pool_id="A", lane="p1"),
            self(
                e.TaskStarted,
                token=token,
                incarnation_id=f"gpu-{token}.1",
                lease_seconds=120,
                **place,
            ),
        ]

    def spent(self) -> list[Placed]:
        """Twice lost to nobody, then spent."""
        again: dict[str, Any] = {"counted": True, "delay_ms": 10, "failure": FailureClass.HUNG}
        return [
            self.created(),
            *self.tried(1),
            self(e.TaskRequeued, token=1, card_ms=1_000, **again),
            *self.tried(2),
            self(
                e.TaskFailed,
                token=2,
                failure=FailureClass.RETRIES_SPENT,
                last_failure=FailureClass.HUNG,
                message="no sign of life",
                card_ms=2_000,
            ),
        ]

    def letter(self) -> Placed:
        spent = DeadLetter(
            letter_id=f"{self.task_id}-{self.seq}.0l",
            at=NOON,
            topic="task-commands",
            partition=self.partition,
            offset=7,
            cause="retries_spent",
            task_id=self.task_id,
            failure=FailureClass.HUNG,
            trace_id=TraceId("trace-1"),
        )
        return Topic.DEAD_LETTERS, self.partition, self.task_id, spent


async def archived(ground: Ground, feed: str) -> None:
    """Until everything that is applied is archived, by the positions."""
    query = """
        SELECT 1 FROM dead_letters AS d WHERE $1 <> 'failures' AND d.log_offset >= coalesce((
            SELECT next FROM archive_positions AS a
            WHERE a.feed = $1 AND a.log_partition = d.log_partition), 0)
        UNION ALL
        SELECT 1 FROM task_events AS t
        WHERE $1 = 'failures' AND t.kind = 'task.failed.v1' AND t.log_offset >= coalesce((
            SELECT next FROM archive_positions AS a
            WHERE a.feed = $1 AND a.log_partition = t.log_partition), 0)
    """
    async with asyncio.timeout(60):
        while await ground.rows(query, feed):  # noqa: ASYNC110 - the positions tell
            await asyncio.sleep(0.05)


async def objects(ground: Ground, keys: Sequence[str]) -> list[dict[str, Any]]:
    assert ground.settings.objects is not None
    async with ObjectStore(ground.settings.objects) as store:
        return [json.loads(await store.get(key)) for key in keys]


async def test_a_failed_task_is_one_object_with_all_that_led_there(ground: Ground) -> None:
    life = Life(ground, "spent")
    async with projecting(ground):
        await ground.write([*life.spent(), life.letter()])
        await ground.applied()
        await archived(ground, "failures")
    (found,) = await objects(ground, [failure_key(DAY, life.task_id, 2)])
    assert found["failure"] == "retries_spent"
    assert (found["last_failure"], found["message"]) == ("hung", "no sign of life")
    assert (found["trace_id"], found["policy_version"]) == ("trace-1", 1)
    assert (found["runner_id"], found["incarnation_id"]) == ("gpu-2", "gpu-2.1")
    assert (found["card_ms"], found["card_measured"]) == (3_000, True)
    assert (found["attempts"], found["retries"], found["losses"]) == (2, 1, 0)
    assert found["letter_id"] == f"{life.task_id}-{life.seq}.0l"
    assert found["complete"] is True
    assert [event["seq"] for event in found["events"]] == list(range(1, life.seq + 1))
    text = json.dumps(found)
    assert "sealed for its user" not in text
    assert base64.b64encode(b"sealed for its user").decode() not in text


async def test_a_dead_letter_is_an_object_and_what_cannot_be_read_is_named_not_copied(
    ground: Ground,
) -> None:
    asked = SubmitTask(
        command_id=CommandId("c"),
        task_id=TaskId("t"),
        origin=Origin(**_origin(ground), private=b"sealed for its user"),
    )
    async with projecting(ground):
        await ground.write([letter(1, value=encode(asked)), letter(2, value=b"\xffmy secret")])
        await ground.applied()
        await archived(ground, "letters")
    keys = [letter_key(DAY, f"task-commands/0/{number}") for number in (1, 2)]
    readable, other = await objects(ground, keys)
    assert readable["record"]["type"] == "task.submit.v1"
    assert "private" not in readable["record"]["origin"]
    assert (readable["topic"], readable["partition"], readable["offset"]) == ("task-commands", 0, 1)
    assert (other["record"], other["record_bytes"]) == (None, 10)
    assert "secret" not in json.dumps(other)


def _origin(ground: Ground) -> dict[str, Any]:
    life = Life(ground, "x")
    made: e.TaskCreated = life.created()[3]
    named = ("user_id", "tenant_id", "account_id", "scene", "tier", "fingerprint")
    return {name: getattr(made.origin, name) for name in named}


async def test_a_record_that_is_nested_without_end_does_not_stop_the_archive(
    ground: Ground,
) -> None:
    deep = b'{"a":' + b"[" * 600 + b"]" * 600 + b"}"
    async with projecting(ground):
        await ground.write([letter(1, value=deep), letter(2)])
        await ground.applied()
        await archived(ground, "letters")
    first, second = await objects(
        ground, [letter_key(DAY, f"task-commands/0/{number}") for number in (1, 2)]
    )
    assert TOO_DEEP in json.dumps(first["record"])
    assert first["record_bytes"] == len(deep)
    assert second["record"] == {}


async def test_without_the_store_read_models_go_on_and_nothing_is_lost(
    ground: Ground, caplog: pytest.LogCaptureFixture
) -> None:
    here = ground.settings
    assert here.objects is not None
    away = msgspec.structs.replace(here.objects, endpoint=NOBODY, public_endpoint="")
    ground.settings = msgspec.structs.replace(here, objects=away)
    lives = [Life(ground, f"life{number:03d}") for number in range(PAGE // 20)]
    with caplog.at_level(logging.WARNING):
        async with projecting(ground):
            for life in lives:
                await ground.write([*life.spent(), life.letter()])
            await ground.applied()
            await archived(ground, "alerts")  # whoever must look hears of it all the same
            assert len(await ground.rows("SELECT 1 FROM tasks WHERE status = 'FAILED'")) == len(
                lives
            )
            assert (
                await ground.rows("SELECT 1 FROM archive_positions WHERE feed = 'failures'") == []
            )
    alerts = [record for record in caplog.records if record.message == "alert"]
    assert len(alerts) == len(lives)
    ground.settings = here
    async with projecting(ground):
        await archived(ground, "failures")
    found = await objects(ground, [failure_key(DAY, life.task_id, 2) for life in lives])
    assert [one["task_id"] for one in found] == [life.task_id for life in lives]


async def test_more_than_a_page_is_archived_page_by_page_and_once_more_changes_nothing(
    ground: Ground,
) -> None:
    lives = [Life(ground, f"page{number:03d}") for number in range(PAGE + 5)]
    await ground.write([one for life in lives for one in life.spent()], batch=200)
    keys = [failure_key(DAY, life.task_id, 2) for life in lives]
    async with projecting(ground):
        await ground.applied()
        await archived(ground, "failures")
    first = await objects(ground, keys)
    db = await connect(ground.dsn)
    await process.empty(db, [])  # everything is folded anew, and archived anew
    await db.close()
    async with projecting(ground):
        await ground.applied()
        await archived(ground, "failures")
    assert await objects(ground, keys) == first
    await check_fold(ground)


async def test_a_projection_that_is_rebuilt_tells_nobody_again(
    ground: Ground, caplog: pytest.LogCaptureFixture
) -> None:
    async with projecting(ground):
        await ground.write([letter(1)])
        await ground.applied()
        await archived(ground, "alerts")
    db = await connect(ground.dsn)
    await process.empty(db, ["letters"])
    await db.close()
    caplog.clear()
    with caplog.at_level(logging.WARNING):
        async with projecting(ground):
            await ground.applied()
            await ground.write([letter(2)])
            await ground.applied()
            await archived(ground, "alerts")
    assert [record.message for record in caplog.records].count("alert") == 1


async def test_without_a_store_in_the_settings_the_projector_runs(ground: Ground) -> None:
    ground.settings = msgspec.structs.replace(ground.settings, objects=None)
    async with projecting(ground):
        await ground.write([letter(1)])
        await ground.applied()
        await archived(ground, "alerts")
    assert await ground.rows("SELECT 1 FROM archive_positions WHERE feed <> 'alerts'") == []
