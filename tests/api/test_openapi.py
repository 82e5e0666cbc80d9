"""The OpenAPI document is checked in; whoever changes the edge changes it knowingly.

`python -m tests.api.test_openapi` writes it anew.
"""

import json
import tempfile
from pathlib import Path
from typing import Any

from api.app import build_rest, document
from api.parts import build_parts
from schema.settings import load
from tests.api.door import ROOT, environ_without_parts

SNAPSHOT = ROOT / "docs" / "openapi.json"


def _generated(directory: Path) -> dict[str, Any]:
    found: dict[str, Any] = document(
        build_rest(build_parts(load(environ_without_parts(directory))))
    )
    return found


def test_the_document_is_the_one_that_is_checked_in(tmp_path: Path) -> None:
    assert _generated(tmp_path) == json.loads(SNAPSHOT.read_bytes())


def test_every_operation_documents_its_problems(tmp_path: Path) -> None:
    for path, item in _generated(tmp_path)["paths"].items():
        for method, operation in item.items():
            if path.startswith("/v1/"):
                assert "401" in operation["responses"], (method, path)
                assert "503" in operation["responses"], (method, path)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        text = json.dumps(_generated(Path(folder)), indent=1, ensure_ascii=False, sort_keys=True)
    SNAPSHOT.parent.mkdir(exist_ok=True)
    SNAPSHOT.write_text(text + "\n")
