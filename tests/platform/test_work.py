"""What runs: it keeps its lease, tells few milestones, and leaves rows alone while it does."""

from datetime import datetime
from itertools import islice, pairwise
from typing import Any

import asyncpg
import pytest

from tests.platform.installed import Platform
from tests.platform.people import ENDED, told

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]

ROW = """
SELECT t.xmin::text, t.ctid::text, t.status, t.seq, t.updated_at,
    (SELECT count(*) FROM task_events e
     WHERE e.task_id = t.task_id AND e.kind = 'task.progressed.v1') AS milestones
FROM tasks t WHERE t.task_id = $1
"""
"""The row as it lies in the table, and how many milestones are stored, in one snapshot."""


async def versions(dsn: str, task_id: str) -> list[Any]:
    """Every look at a task's row until it has ended."""
    connection = await asyncpg.connect(dsn)
    try:
        seen: list[Any] = []
        while True:
            row = await connection.fetchrow(ROW, task_id)
            if row is not None:
                seen.append(row)
                if row["status"] in ENDED:
                    return seen
    finally:
        await connection.close()


async def test_twenty_reports_are_few_milestones_and_write_no_row(platform: Platform) -> None:
    with platform.person() as ann:
        answer = ann.submitted({"seconds": 4, "steps": 20, "reports": 20})
        seen = await versions(platform.dsn, answer["task_id"])
        running = [row for row in seen if row["status"] == "RUNNING" and row["milestones"] < 4]
        # Every look while milestones came, from none to the last but one, found the same version.
        assert {row["milestones"] for row in running} >= {0, 1, 2, 3}
        for name in ("xmin", "ctid", "seq", "updated_at"):
            assert len({row[name] for row in running}) == 1, name
        events = ann.events(answer["task_id"])
        milestones = [one["percent"] for one in events if one["event"] == "task.progressed.v1"]
        assert milestones == [10, 30, 60, 90]


def test_progress_goes_on_between_the_milestones(platform: Platform) -> None:
    with platform.person() as ann:
        task_id = ann.submitted({"seconds": 110, "steps": 1_100, "reports": 1_100})["task_id"]
        with ann.stream(f"/v1/tasks/{task_id}/events") as stream:
            between = (event.data for event in stream.events() if event.name == "progress")
            heard = list(islice(between, 4))
        told(ann.cancel(task_id), 200)
        percents = [one["percent"] for one in heard]
        assert len(percents) == 4
        assert percents == sorted(percents)
        assert all(one["token"] == 1 for one in heard)
        at = sorted({datetime.fromisoformat(one["at"]) for one in heard})
        apart = [(later - one).total_seconds() for one, later in pairwise(at)]
        assert all(seconds >= 0.5 for seconds in apart), f"about one a second: {apart}"


def test_work_that_outlasts_its_lease_many_times_runs_once(platform: Platform) -> None:
    with platform.person() as ann:
        lease_seconds = platform.policy["pools"]["R"]["lease_seconds"]
        tasks = [
            ann.submitted({"seconds": 2 * lease_seconds, "steps": 40, "reports": number})["task_id"]
            for number in range(3)
        ]
        for task_id in tasks:
            task = ann.await_end(task_id)
            assert (task["status"], task["token"]) == ("SUCCEEDED", 1)


def test_more_work_than_slots_waits_and_is_all_done(platform: Platform) -> None:
    with platform.person() as ann:
        tasks = [
            ann.submitted({"seconds": 0.5, "no_op": True, "steps": number + 1})["task_id"]
            for number in range(20)
        ]
        assert {ann.await_end(task_id)["status"] for task_id in tasks} == {"SUCCEEDED"}
        assert ann.await_resolved()["day"]["used"] == 20
