"""Stopped, nothing of it is left; started again, it knows everything."""

import pytest

from tests.platform.installed import Platform
from tests.platform.people import told

pytestmark = [pytest.mark.integration, pytest.mark.timeout(400)]


def test_nothing_runs_after_a_stop_and_a_start_goes_on_where_it_was(platform: Platform) -> None:
    with platform.person() as ann:
        done = ann.await_end(ann.submitted({"seconds": 0.1})["task_id"])
        waiting = ann.submitted({}, materials=[ann.register(b"later", "later.mp4")["material_id"]])
        running = ann.submitted({"seconds": 6, "steps": 60})["task_id"]
        ann.await_event(running, "task.started.v1")
        assert platform.left_overs() != []
        platform.stop()
        try:
            assert platform.left_overs() == []
        finally:
            platform.start()
        assert ann.task(done["task_id"]) == done
        (file,) = told(ann.http.get(f"/v1/tasks/{done['task_id']}/result"), 200)["files"]
        assert file["sha256"] == done["files"][0]["sha256"]
        assert ann.task(waiting["task_id"])["status"] == "CREATED"
        # What ran was given back, or lost with its runner, and runs again; no retry was burnt.
        task = ann.await_end(running)
        assert (task["status"], task["retries"]) == ("SUCCEEDED", 0)
        told(ann.cancel(waiting["task_id"]), 200)
