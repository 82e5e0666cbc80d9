"""The real api as a process, and what a caller needs to knock at its door."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import jwt

ROOT = Path(__file__).parents[2]
SECRET = "a shared secret of tests, long enough for HS256"
CLOSED_PORT = "127.0.0.1:9"
"""Nobody listens at `discard`."""
READY_SECONDS = 30


def environ_without_parts(directory: Path) -> dict[str, str]:
    """Settings of an api whose log, read model, store and Redis are all away."""
    key_file = directory / "token-key"
    key_file.write_text(SECRET)
    return {
        "CUTLOG_KAFKA_BROKERS": CLOSED_PORT,
        "CUTLOG_POSTGRES_DSN": f"postgresql://nobody@{CLOSED_PORT}/nothing",
        "CUTLOG_REDIS_URL": f"redis://{CLOSED_PORT}/0",
        "CUTLOG_OBJECTS_ENDPOINT": f"http://{CLOSED_PORT}",
        "CUTLOG_OBJECTS_ACCESS_KEY": "nobody",
        "CUTLOG_OBJECTS_SECRET_KEY": "nothing",
        "CUTLOG_KEYS_PSEUDONYM_SECRET": "pseudonyms of tests",
        "CUTLOG_KEYS_CONSISTENCY_SECRET": "consistency of tests",
        "CUTLOG_KEYS_DIRECTORY": str(directory / "keys"),
        "CUTLOG_API_PORT": "0",
        "CUTLOG_API_TOKEN_ALGORITHM": "HS256",
        "CUTLOG_API_TOKEN_KEY_FILE": str(key_file),
        "CUTLOG_PROCESS_READY_FILE": str(directory / "ready.json"),
    }


def claims(**changes: Any) -> dict[str, Any]:  # noqa: ANN401 - any claim
    """The claims of a good token, with changes; None takes a claim away."""
    found = {
        "iss": "cutlog",
        "aud": "cutlog",
        "sub": "ann",
        "tenant": "",
        "tier": "free",
        "scope": "",
        "exp": int(time.time()) + 12 * 3600,  # some are made when tests are collected
        **changes,
    }
    return {name: value for name, value in found.items() if value is not None}


def token(**changes: Any) -> str:  # noqa: ANN401 - any claim
    """A token of the tests' secret."""
    return jwt.encode(claims(**changes), SECRET, algorithm="HS256")


def bearer(**changes: Any) -> dict[str, str]:  # noqa: ANN401 - any claim
    """The header of such a token."""
    return {"Authorization": f"Bearer {token(**changes)}"}


@contextmanager
def running_api(environ: Mapping[str, str]) -> Generator[tuple[str, subprocess.Popen[bytes]]]:
    """`python -m api` on a free port: its address and the process."""
    ready = Path(environ["CUTLOG_PROCESS_READY_FILE"])
    ready.unlink(missing_ok=True)
    inherited = {name: value for name, value in os.environ.items() if "CUTLOG" not in name}
    process = subprocess.Popen(
        [sys.executable, "-m", "api"], cwd=ROOT, env={**inherited, **environ, "TZ": "UTC"}
    )
    try:
        until = time.monotonic() + READY_SECONDS
        while not ready.exists():
            if process.poll() is not None or time.monotonic() > until:
                raise AssertionError("the api did not start")
            time.sleep(0.02)  # a file has no other way to tell
        port = json.loads(ready.read_bytes())["port"]
        yield f"http://127.0.0.1:{port}", process
    finally:
        process.send_signal(signal.SIGCONT)
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def client(url: str, headers: Mapping[str, str] | None = None) -> httpx.Client:
    """A plain HTTP client."""
    return httpx.Client(base_url=url, headers=dict(headers or {}), timeout=40)
