"""What the command line says when something is wrong, and that nothing it shows is cut off."""

import io
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from typer.main import get_command

from cutlog import cli, letters, show, status
from cutlog.client import Client, Refused, StreamEvent

TASK_ID = "7a6y1my79962m8ezyeb0xsd1w4827134"
LETTER_ID = f"fail-{TASK_ID}-3-1748b62e2bc841fb94d7c0ffee123456"


class Said:
    """What a command line came to."""

    def __init__(self, code: int, out: str, err: str) -> None:
        self.code, self.out, self.err = code, out, err


def said(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *arguments: str
) -> Said:
    """Run it as a person would; an exception that gets out of it fails the test."""
    monkeypatch.setattr(sys, "argv", ["cutlog", *arguments])
    with pytest.raises(SystemExit) as end:
        cli.main()
    out, err = capsys.readouterr()
    code = end.value.code
    return Said(code if isinstance(code, int) else 0, out, err)


def printed(shown: object, width: int = 80) -> str:
    text = io.StringIO()
    Console(file=text, width=width, highlight=False).print(shown)
    return text.getvalue()


# --- wrong command lines -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "code", "told"),
    [
        ("submit empty.mp4", 2, "empty.mp4 is empty"),
        ("submit folder", 2, "is a directory"),
        ("submit missing.mp4", 2, "does not exist"),
        ("submit", 2, "autocut needs at least one file"),
        ("submit --scene matting", 2, "matting needs at least one file"),
        ("submit some.mp4 -p target_seconds", 2, "'target_seconds' is not NAME=JSON"),
        ("submit some.mp4", 1, "python -m cutlog up"),
        ("materials upload empty.mp4", 2, "empty.mp4 is empty"),
        ("list", 1, "nothing was ever started in"),
        ("list --status nonsense", 2, "queued"),
        ("status", 1, "nothing was ever started in"),
        ("status --json", 1, "nothing was ever started in"),
        ("token", 1, "nothing was ever started in"),
        ("policy publish some.mp4 --why x", 1, "some.mp4 is no policy: "),
        ("policy publish missing.json --why x", 2, "does not exist"),
        ("up --port 99999", 2, "65535"),
        ("up --set CUTLOG_RUNNER_MODEL=x", 2, "is not CUTLOG_…=VALUE"),
        ("up --set CUTLOG_RUNNER_SPOT", 2, "is not CUTLOG_…=VALUE"),
        ("up --runner A", 2, "POOL:SLOTS"),
        ("up --runner Z:1", 1, "has no pool 'Z'; it has A, B,"),
        ("up --policy missing.json", 2, "does not exist"),
        ("up --policy some.mp4", 1, "some.mp4 is no policy: "),
        ("up -d some.mp4", 1, "some.mp4: File exists"),
        ("up -d some.mp4/inside", 1, "some.mp4/inside: Not a directory"),
    ],
)
def test_a_wrong_command_line_is_told_what_is_wrong_and_nothing_is_begun(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    arguments: str,
    code: int,
    told: str,
) -> None:
    (tmp_path / "empty.mp4").touch()
    (tmp_path / "some.mp4").write_text("hello")
    (tmp_path / "folder").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("CUTLOG_HOME", raising=False)
    found = said(monkeypatch, capsys, *arguments.split())
    assert (found.code, told in found.err) == (code, True), found.err
    assert not found.out
    assert sorted(path.name for path in tmp_path.iterdir()) == ["empty.mp4", "folder", "some.mp4"]


def test_where_nothing_was_ever_started_down_has_nothing_to_end(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("CUTLOG_HOME", raising=False)
    found = said(monkeypatch, capsys, "down")
    assert (found.code, found.err) == (0, "")
    assert not list(tmp_path.iterdir())


# --- refusals ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("problem", "words"),
    [
        (
            {"title": "The task has ended", "detail": "SUCCEEDED", "help": "Submit a new one."},
            "The task has ended (SUCCEEDED). Submit a new one.",
        ),
        (
            {"title": "It can't be used", "detail": "The file is text.", "advice": "Take another."},
            "The file is text. Take another.",
        ),
        (
            {
                "title": "The body does not fit",
                "help": "Correct the fields named in `errors`.",
                "errors": [{"field": "title", "message": "Too long"}],
            },
            "The body does not fit. title: Too long.",
        ),
        (
            {
                "title": "No credits",
                "help": "Wait until `resets_at`.",
                "resets_at": "2027-01-01T00:00:00+00:00",
            },
            "No credits. Wait until 2027-01-01T00:00:00+00:00.",
        ),
        (
            {"title": "Paused", "help": "Come back after Retry-After.", "retry_after_seconds": 60},
            "Paused. Come back after 60 s.",
        ),
        ({}, "some_code."),
    ],
)
def test_a_refusal_is_sentences_that_say_what_is_wrong_and_what_to_do(
    problem: dict[str, Any], words: str
) -> None:
    assert str(Refused(409, {"code": "some_code", **problem})) == f"409 some_code: {words}"


# --- what is shown -------------------------------------------------------------------------------


def test_ids_of_tasks_are_whole_on_eighty_columns() -> None:
    task = {
        "task_id": TASK_ID,
        "scene": "rehearsal",
        "lane": "p1",
        "status": "SUCCEEDED",
        "created_at": "2026-12-01T02:59:28.351000Z",
    }
    lines = printed(show.tasks([task])).splitlines()
    assert lines[1].split() == [TASK_ID, "rehearsal", "p1", "SUCCEEDED", "2026-12-01", "02:59"]


def test_ids_of_dead_letters_are_whole_however_long_they_are() -> None:
    letter = {
        "letter_id": LETTER_ID,
        "kind": "spent",
        "state": "open",
        "holds_key": True,
        "failure": "internal",
        "cause": "",
        "at": "2026-12-01T02:52:10.124000Z",
        "task_id": TASK_ID,
    }
    parked = {"key": f"task/{TASK_ID}", "letter_id": LETTER_ID, "since": letter["at"]}

    class Told(Client):
        def look(self, path: str, **params: str | int) -> dict[str, Any]:
            assert (path, params) == ("dead-letters", {"state": "open", "limit": 5})
            return {"letters": [letter], "parked_keys": [parked]}

    text = io.StringIO()
    with Told("http://127.0.0.1:1", "") as client:
        letters.show_list(Console(file=text, width=80), client, None, closed=False, count=5)
    assert text.getvalue().splitlines() == [
        LETTER_ID,
        f"  spent, open and holds its key, internal, 2026-12-01 02:52, task {TASK_ID}",
        f"task/{TASK_ID} waits since 2026-12-01 02:52",
        f"  behind {LETTER_ID}",
    ]


def test_words_of_people_and_names_of_files_are_shown_as_they_are() -> None:
    name = "a-very-long-name-without-any-space-in-it-that-does-not-fit-into-the-column.png"
    at = "2026-12-01T02:59:28Z"
    events = [
        StreamEvent("1:0:1", "task.failed.v1", {"at": at, "message": "[/no] mark-up"}),
        StreamEvent("1:0:2", "task.succeeded.v1", {"at": at, "files": [{"name": name, "size": 5}]}),
    ]
    shown = printed(show.timeline(events))
    assert "[/no] mark-up" in shown
    assert name in "".join(line[34:].strip() for line in shown.splitlines()[2:])
    assert "…" not in shown
    line = status.Line("api", 1, ready=False, told="[Errno 111] away")
    assert "[Errno 111] away" in printed(status.table([line]))


def test_one_card_is_not_cards() -> None:
    pool = {"pool_id": "A", "lanes": [], "breakers": [], "cards_wanted": 1, "slots": 4}
    assert status.remarks([pool]) == ["pool A: 1 card wanted, 4 slots ready"]


def commands(group: Any, path: str = "") -> Iterator[tuple[str, Any]]:  # noqa: ANN401 - typer's
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from commands(command, f"{path}{name} ")
        else:
            yield f"{path}{name}", command


def test_every_command_option_and_argument_says_what_it_is() -> None:
    found = dict(commands(get_command(cli.app)))
    assert {"submit", "materials upload", "dlq redrive", "publish"} <= set(found)
    for name, command in found.items():
        assert command.help, name
        silent = [one.name for one in command.params if not getattr(one, "help", None)]
        assert silent == [], name
