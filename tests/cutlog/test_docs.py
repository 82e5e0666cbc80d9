"""The documents say what is: every setting is listed, every link and every named test exists."""

import re
from pathlib import Path

import msgspec
import pytest

from schema.settings import PREFIX, Settings

ROOT = Path(__file__).parents[2]
DOCUMENTS = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").rglob("*.md"))]


def variables() -> set[str]:
    found: set[str] = set()
    for section in msgspec.structs.fields(Settings):
        kinds = getattr(section.type, "__args__", (section.type,))
        for kind in kinds:
            if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
                found |= {
                    f"{PREFIX}_{section.name}_{field.name}".upper()
                    for field in msgspec.structs.fields(kind)
                }
    return found


def test_every_setting_stands_in_the_document_and_no_other_does() -> None:
    listed = re.findall(
        r"^\| `(CUTLOG_[A-Z_]+)` \|", (ROOT / "docs/operating.md").read_text(), re.MULTILINE
    )
    assert set(listed) == variables()
    assert len(listed) == len(set(listed))


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_every_link_leads_somewhere(document: Path) -> None:
    links = re.findall(r"\]\((?!https?:)([^)#]+)", document.read_text())
    assert [link for link in links if not (document.parent / link).exists()] == []


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_every_named_test_exists(document: Path) -> None:
    named = re.findall(r"`(tests/[A-Za-z0-9_/.]+)", document.read_text())
    assert [name for name in named if not (ROOT / name.rstrip(".")).exists()] == []
