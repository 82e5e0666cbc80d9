"""Dead letters, as a person looks at them and deals with them (`cutlog dlq`)."""

from typing import Any

from rich.console import Console

from cutlog.client import Client
from cutlog.show import to_the_minute

_PATH = "dead-letters"


def show_list(
    console: Console, client: Client, of: str | None, *, closed: bool, count: int
) -> None:
    """Two lines a letter, then the keys that wait."""
    params: dict[str, str | int] = {"state": "all" if closed else "open", "limit": count}
    if of is not None:
        params["of"] = of
    found = client.look(_PATH, **params)
    letters: list[dict[str, Any]] = found["letters"]
    for letter in letters:
        _print(console, *_lines(letter))
    if not letters:
        _print(console, "no dead letters" if closed else "no open dead letters")
    parked: list[dict[str, Any]] = found["parked_keys"]
    for one in parked:
        since = to_the_minute(one["since"])
        _print(console, f"{one['key']} waits since {since}", f"  behind {one['letter_id']}")


def _lines(letter: dict[str, Any]) -> list[str]:
    """The id alone in its line, since it is long and is copied; then what is known of it."""
    told = [
        letter["kind"],
        letter["state"] + (" and holds its key" if letter["holds_key"] else ""),
        letter["failure"] or letter["cause"],
        to_the_minute(letter["at"]),
    ]
    if letter["task_id"]:
        told.append(f"task {letter['task_id']}")
    return [letter["letter_id"], "  " + ", ".join(told)]


def _print(console: Console, *lines: str) -> None:
    for line in lines:
        console.print(line, soft_wrap=True, markup=False)


def show_whole(console: Console, client: Client, of: str) -> None:
    """Everything that is known of them, as JSON."""
    console.print_json(data=client.look(f"{_PATH}/show", of=of))


def close(console: Console, client: Client, how: str, of: str, why: str) -> int:
    """Redrive or discard; 1 if a letter has to wait for another one."""
    found = client.operate(f"{_PATH}/{how}", {"of": of, "why": why})
    letters: list[dict[str, Any]] = found["letters"]
    for letter in letters:
        behind = letter["behind"]
        rest = f"comes after {behind}: {how} that first" if behind else "is on its way"
        if letter["status"] == "known":
            rest = "is closed, and nothing is done: its task is there, asked for again since"
        _print(console, f"{letter['letter_id']}  {rest}")
    return 1 if any(letter["behind"] for letter in letters) else 0
