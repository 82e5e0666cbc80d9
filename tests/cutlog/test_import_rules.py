"""Each import rule is seen to fail when it is broken, in a tree of empty packages."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = (
    "schema",
    "schema/wires",
    "commands",
    "processors",
    "processors/engine",
    "processors/simulation",
    "projections",
    "gpu_runners",
    "api",
    "cutlog",
)
# The contract, the package that breaks it, the line that does.
BREACHES = (
    ("floors", "schema", "import commands"),
    ("floors", "api", "import processors"),
    ("floors", "commands", "import projections"),
    ("one-customer", "api", "import commands"),
    ("person", "cutlog", "import api"),
    ("below-the-person", "projections", "import cutlog"),
    ("pure-commands", "commands", "import time"),
    ("pure-commands", "commands", "import random"),
    ("pure-commands", "commands", "import schema.wires"),
    ("pure-schema", "schema", "import socket"),
    ("wires", "schema", "import schema.wires"),
    ("media-in-its-place", "api", "import cv2"),
    ("faust-in-its-place", "projections", "import faust"),
    ("simulation-without-faust", "processors/simulation", "import faust"),
    ("engine-lifts-out", "processors/engine", "import schema"),
)


def lint(tree: Path, contract: str) -> int:
    for package in PACKAGES:
        (tree / package).mkdir(exist_ok=True)
        (tree / package / "__init__.py").touch()
    shutil.copy(ROOT / "pyproject.toml", tree)
    tool = str(Path(sys.executable).parent / "lint-imports")
    command = [tool, "--no-cache", "--contract", contract]
    return subprocess.run(command, cwd=tree, capture_output=True, check=False).returncode


@pytest.mark.parametrize(("contract", "package", "line"), BREACHES)
def test_a_breach_of_an_import_rule_is_noticed(
    contract: str, package: str, line: str, tmp_path: Path
) -> None:
    assert lint(tmp_path, contract) == 0
    (tmp_path / package / "__init__.py").write_text(f"{line}\n")
    assert lint(tmp_path, contract) == 1


def test_wires_may_do_what_the_rest_of_schema_may_not(tmp_path: Path) -> None:
    lint(tmp_path, "pure-schema")
    (tmp_path / "schema" / "wires" / "__init__.py").write_text("import asyncio, os, aiokafka\n")
    assert lint(tmp_path, "pure-schema") == 0
