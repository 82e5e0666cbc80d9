"""The process: wrong settings are named, a stop is quick and clean, readiness says why."""

import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path

import httpx
import pytest
from fastapi import FastAPI

from api.app import build_app
from schema.settings import load
from tests.api.door import ROOT, environ_without_parts, running_api


def test_a_missing_setting_is_named_and_ends_the_process(tmp_path: Path) -> None:
    environ = environ_without_parts(tmp_path)
    for name in [name for name in environ if "_POSTGRES_" in name]:
        del environ[name]
    ended = subprocess.run(
        [sys.executable, "-m", "api"],
        cwd=ROOT,
        env={"PATH": "/usr/bin:/bin", **environ},
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert ended.returncode == 78
    assert b"CUTLOG_POSTGRES_" in ended.stderr


def test_readiness_says_what_is_away_and_metrics_are_served(lonely_api: str) -> None:
    ready = httpx.get(f"{lonely_api}/readyz")
    assert (ready.status_code, ready.json()["reason"]) == (503, "the log is away")
    assert httpx.get(f"{lonely_api}/healthz").status_code == 200
    metrics = httpx.get(f"{lonely_api}/metrics")
    assert "cutlog_api_requests_total" in metrics.text


def test_a_stop_does_not_wait_for_clients_that_keep_their_connections(tmp_path: Path) -> None:
    with (
        running_api(environ_without_parts(tmp_path)) as (url, process),
        httpx.Client(base_url=url) as client,
    ):
        assert client.get("/healthz").status_code == 200
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0  # and the client has not gone


def test_a_client_that_leaves_in_the_middle_of_a_body_disturbs_nobody(lonely_api: str) -> None:
    host, port = lonely_api.removeprefix("http://").split(":")

    def leave() -> None:
        with socket.create_connection((host, int(port))) as connection:
            connection.sendall(
                b"POST /v1/tasks HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{"
            )

    threads = [threading.Thread(target=leave) for _ in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert httpx.get(f"{lonely_api}/healthz").status_code == 200


async def test_what_nobody_expected_is_a_problem_too_and_is_logged_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    edge = build_app(load(environ_without_parts(tmp_path)))
    rest: FastAPI = edge.rest  # type: ignore[assignment]

    @rest.get("/boom")
    async def boom() -> None:
        raise ZeroDivisionError

    transport = httpx.ASGITransport(app=edge, raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://x") as http:
        answer = await http.get("/boom")
    assert answer.status_code == 500
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.json()["code"] == "internal"
    assert "ZeroDivision" not in answer.text
    assert [record.message for record in caplog.records] == ["request failed"]
