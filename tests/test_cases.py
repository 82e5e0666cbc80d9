"""The table of cases names tests that exist, and says of nothing that it holds without one."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
TABLE = (ROOT / "docs" / "cases.md").read_text()
ROWS = re.findall(r"^\| (\d+) \| (.+?) \| (.+?) \| (.*?) \|$", TABLE, re.MULTILINE)
FILES = re.findall(r"^\| F(\d+) \| (.+?) \| (.+?) \| (.*?) \|$", TABLE, re.MULTILINE)
NAMED = re.compile(r"`(tests/[\w/]+\.py)::(test_\w+)`")
MAY_BE_OPEN = {14, 16, 18, 20, 27, 28, 29, 30}


def functions(path: Path) -> set[str]:
    tree = ast.parse(path.read_text())
    return {
        node.name
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }


def test_every_case_has_its_row() -> None:
    assert [int(row[0]) for row in ROWS] == list(range(1, 31))
    assert [int(row[0]) for row in FILES] == list(range(1, 16))


def test_every_test_that_is_named_exists() -> None:
    missing = [
        f"{path}::{name}"
        for path, name in NAMED.findall(TABLE)
        if not (ROOT / path).is_file() or name not in functions(ROOT / path)
    ]
    assert missing == []


def test_only_what_is_allowed_to_be_open_is_open_and_all_else_names_a_test() -> None:
    for number, _, how, tests in ROWS:
        if "**Open" in how:
            assert int(number) in MAY_BE_OPEN, number
        else:
            assert NAMED.search(tests), number


def test_every_case_of_a_file_names_a_test() -> None:
    assert [number for number, _, _, tests in FILES if not NAMED.search(tests)] == []
