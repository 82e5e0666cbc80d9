"""docs/by-hand.md is true: its blocks run as they stand, and say what they are said to say."""

import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Final, NamedTuple

import pytest

from api.problems import Door, status_of
from cutlog.installation import ROOT
from schema.refusals import Refusal
from tests.platform.installed import Platform
from tests.support.clips import samples

_BASH: Final = shutil.which("bash") or ""
pytestmark = [
    pytest.mark.integration,
    pytest.mark.timeout(400),
    pytest.mark.skipif(not _BASH, reason="bash is not installed"),
    pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed"),
]

DOCUMENT: Final = ROOT / "docs" / "by-hand.md"
_BLOCK: Final = re.compile(r"```sh\n(.*?)```\n((?:<!-- expect: .*? -->\n)*)", re.DOTALL)
_EXPECT: Final = re.compile(r"<!-- expect: (.*?) -->")
_SECONDS: Final = 300


class Block(NamedTuple):
    """One step of the document, and what its output must contain."""

    script: str
    expected: list[str]


def blocks() -> list[Block]:
    """The steps of the document in their order."""
    return [
        Block(script, _EXPECT.findall(expected))
        for script, expected in _BLOCK.findall(DOCUMENT.read_text())
    ]


def test_the_document_has_its_steps() -> None:
    assert len(blocks()) >= 20
    assert sum(len(block.expected) for block in blocks()) >= 30


def test_every_code_of_the_table_has_the_status_that_it_names() -> None:
    rows = re.findall(r"^\| (`.*`) \| (\d{3}) \|", DOCUMENT.read_text(), re.MULTILINE)
    assert len(rows) >= 6
    for codes, status in rows:
        for code in re.findall(r"`(\w+)`", codes):
            known = Door(code).status if code in set(Door) else status_of(Refusal(code))
            assert known == int(status), code


def test_every_step_of_the_document_works_as_it_stands(platform: Platform, tmp_path: Path) -> None:
    """One shell runs them all, as a reader's would; each step writes to a file of its own."""
    steps = blocks()
    script = ["set -eu", f"ln -s {ROOT}/cutlog {ROOT}/schema {ROOT}/.venv ."]
    for number, block in enumerate(steps):
        script.append(f"{{\n{block.script}}} > step-{number}.txt")
        script.append(f"echo {number} > done.txt")
    environ = {
        **os.environ,
        "CUTLOG_HOME": str(platform.installation.directory),
        "CLIP": str(next(clip for clip in samples() if clip.name == "bigbuckbunny.mp4")),
        "POLICY": "in-force.json",
    }
    (tmp_path / "in-force.json").write_text(json.dumps(platform.policy))
    done = subprocess.run(
        [_BASH, "-c", "\n".join(script)],
        cwd=tmp_path,
        env=environ,
        capture_output=True,
        text=True,
        check=False,
        timeout=_SECONDS,
    )
    published = tmp_path / "policy.json"
    if published.exists():
        platform.policy = json.loads(published.read_text())["policy"]
    reached = int((tmp_path / "done.txt").read_text()) if (tmp_path / "done.txt").exists() else -1
    last = tmp_path / f"step-{reached + 1}.txt"
    assert done.returncode == 0, (
        f"step {reached + 1} failed with {done.returncode}:\n{steps[reached + 1].script}\n"
        f"{last.read_text() if last.exists() else ''}\n{done.stderr[-3000:]}"
    )
    for number, block in enumerate(steps):
        output = (tmp_path / f"step-{number}.txt").read_text()
        for pattern in block.expected:
            assert re.search(pattern, output, re.MULTILINE), (
                f"step {number} does not tell {pattern!r}:\n{block.script}\n{output[-3000:]}"
            )
