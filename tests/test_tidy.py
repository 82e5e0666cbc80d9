"""The rules of the house that no linter knows. They hold for the whole tree, and they are tests."""

import ast
import importlib.metadata
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from tests.schema.samples import messages

ROOT = Path(__file__).parent.parent
PACKAGES = ("schema", "commands", "processors", "projections", "gpu_runners", "api", "cutlog")
FUNCTION_LINES_MAX = 70
NAMES_NOT_USED = frozenset(
    {"utils", "util", "common", "core", "helpers", "models", "services", "manager"}
)
FRAMEWORKS = frozenset({"faust", "fastapi", "kafka", "postgres", "redis", "torch", "typer"})
WIRE_NAME = re.compile(r"[a-z]+(_[a-z]+)*(\.[a-z]+(_[a-z]+)*)*\.v[1-9][0-9]*")
OF_ONE_MACHINE = re.compile(
    r"(?<![\w./])/(?:work|root|home)/\w|\b(?:py[p]i|python[h]osted|repo[1]\.maven|arti[f]actory)\.\w+"
)
"""Paths of a developer's machine, hosts of package registries."""
CLOCKS = frozenset({"monotonic", "perf_counter", "elapsed"})
TEXT = frozenset(
    {".py", ".md", ".toml", ".txt", ".in", ".yaml", ".yml", ".json", ".sql", ".lock", ".cfg", ""}
)


def files() -> list[Path]:
    """What is or would be checked in."""
    listed = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard"],  # noqa: S607
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    )
    found = [ROOT / line for line in listed.stdout.splitlines()]
    return [path for path in found if path.is_file()]


def modules(*roots: str) -> Iterator[tuple[str, ast.Module]]:
    for path in files():
        name = str(path.relative_to(ROOT))
        if path.suffix == ".py" and name.split("/", maxsplit=1)[0] in roots:
            yield name, ast.parse(path.read_text())


@pytest.mark.parametrize("name", PACKAGES)
def test_no_installed_distribution_owns_our_name(name: str) -> None:
    """`schema` is on the index too: a stranger with our name could win over ours."""
    assert importlib.metadata.packages_distributions().get(name, []) == []


def test_every_module_says_what_it_is_for() -> None:
    silent = [path for path, tree in modules(*PACKAGES) if ast.get_docstring(tree) is None]
    assert silent == []


def test_no_function_outgrows_a_screen() -> None:
    long = [
        f"{path}:{node.lineno} {node.name}"
        for path, tree in modules(*PACKAGES, "tests")
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and (node.end_lineno or 0) - node.lineno >= FUNCTION_LINES_MAX
    ]
    assert long == []


def test_no_module_is_called_what_says_nothing_or_after_a_framework() -> None:
    for path in files():
        name = path.relative_to(ROOT)
        if name.parts[0] in PACKAGES and path.suffix == ".py":
            assert not NAMES_NOT_USED.intersection({*name.parts[:-1], name.stem}), name
    assert not FRAMEWORKS.intersection(path.name for path in ROOT.iterdir() if path.is_dir())


def test_wire_names_are_chosen_by_hand_and_versioned() -> None:
    tags = list(messages())
    assert [tag for tag in tags if not WIRE_NAME.fullmatch(tag)] == []
    classes = {kind.__name__.lower() for kind in messages().values()}
    assert not classes.intersection(tags)


def test_the_name_of_a_test_is_a_sentence() -> None:
    short = [
        f"{path} {node.name}"
        for path, tree in modules("tests")
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and node.name.startswith("test_")
        and node.name.count("_") < 3
    ]
    assert short == []


def test_no_test_judges_how_fast_the_machine_is() -> None:
    """What must come before something else is compared with that; a number says nothing."""
    judged = [
        f"{path}:{node.lineno}"
        for path, tree in modules("tests")
        if not path.startswith("tests/benchmarks/")
        for found in ast.walk(tree)
        if isinstance(found, ast.Assert)
        for node in ast.walk(found)
        if isinstance(node, ast.Compare)
        and isinstance(node.ops[0], ast.Lt | ast.LtE)
        and isinstance(node.comparators[0], ast.Constant)
        and any(isinstance(part, ast.Attribute) and part.attr in CLOCKS for part in ast.walk(node))
    ]
    assert judged == []
    assert settings.default is not None
    assert settings.default.deadline is None


def test_no_file_names_a_machine_or_a_registry() -> None:
    told = [
        f"{path.relative_to(ROOT)}: {match[0]}"
        for path in files()
        if path.suffix in TEXT
        for match in OF_ONE_MACHINE.finditer(path.read_text(errors="replace"))
    ]
    assert told == []
