"""Dead letters, as a person looks at them and deals with them (`cutlog dlq`)."""

from typing import Any

from rich.console import Console
from rich.table import Table

from cutlog.client import Client

_PATH = "dead-letters"


def show_list(
    console: Console, client: Client, of: str | None, *, closed: bool, count: int
) -> None:
    """Letters as a table, then the keys that wait."""
    params: dict[str, str | int] = {"state": "all" if closed else "open", "limit": count}
    if of is not None:
        params["of"] = of
    found = client.look(_PATH, **params)
    letters: list[dict[str, Any]] = found["letters"]
    table = Table("letter", "kind", "state", "task", "cause", "at", box=None, header_style="dim")
    for letter in letters:
        table.add_row(
            letter["letter_id"],
            letter["kind"],
            letter["state"] + (" · holds its key" if letter["holds_key"] else ""),
            letter["task_id"] or "",
            letter["failure"] or letter["cause"],
            letter["at"],
        )
    if letters:
        console.print(table)
    else:
        console.print("no dead letters" if closed else "no open dead letters")
    parked: list[dict[str, Any]] = found["parked_keys"]
    if parked:
        keys = Table("key that waits", "behind", "since", box=None, header_style="dim")
        for one in parked:
            keys.add_row(one["key"], one["letter_id"], one["since"])
        console.print("", keys, sep="\n")


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
        console.print(f"{letter['letter_id']}  {rest}", soft_wrap=True)
    return 1 if any(letter["behind"] for letter in letters) else 0
