"""The documents say what is: every setting is listed, every link and every named test exists."""

import re
from pathlib import Path

import msgspec
import pytest

from cutlog.installation import LOCAL_POLICY
from schema.policy import read_policy
from schema.settings import PREFIX, Settings
from schema.words import Scene

ROOT = Path(__file__).parents[2]
DOCUMENTS = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").rglob("*.md"))]


def variables() -> dict[str, object]:
    """Every setting, and its default (NODEFAULT: it is needed)."""
    found: dict[str, object] = {}
    for section in msgspec.structs.fields(Settings):
        kinds = getattr(section.type, "__args__", (section.type,))
        for kind in kinds:
            if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
                found |= {
                    f"{PREFIX}_{section.name}_{field.name}".upper(): field.default
                    for field in msgspec.structs.fields(kind)
                }
    return found


def test_every_setting_stands_in_the_document_and_no_other_does() -> None:
    listed = re.findall(
        r"^\| `(CUTLOG_[A-Z_]+)` \|", (ROOT / "docs/operating.md").read_text(), re.MULTILINE
    )
    assert set(listed) == set(variables())
    assert len(listed) == len(set(listed))


def test_every_default_is_the_one_that_the_document_names() -> None:
    told = dict(
        re.findall(
            r"^\| `(CUTLOG_[A-Z_]+)` \| ([^|]*?) *\|",
            (ROOT / "docs/operating.md").read_text(),
            re.MULTILINE,
        )
    )
    defaults = variables()
    wrong = {name: word for name, word in told.items() if word not in in_words(defaults[name])}
    assert wrong == {}


def in_words(default: object) -> set[str]:
    """How the document may say it: an empty text has no word of its own."""
    if default is msgspec.NODEFAULT:
        return {"needed"}
    if default == "":
        return {"", "none", "as the endpoint"}
    return {str(default), str(default).lower()}


def test_the_limits_that_the_walk_by_hand_names_are_those_of_the_local_policy() -> None:
    limits = read_policy(LOCAL_POLICY.read_bytes()).tiers["free"].limits[Scene.REHEARSAL]
    numbers = {5: "five", 10: "ten"}
    told = f"{numbers[limits.per_minute]} times a minute and {numbers[limits.per_day]} times a day"
    assert told in (ROOT / "docs/by-hand.md").read_text()


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_every_link_leads_somewhere(document: Path) -> None:
    links = re.findall(r"\]\((?!https?:)([^)#]+)", document.read_text())
    assert [link for link in links if not (document.parent / link).exists()] == []


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_every_named_test_exists(document: Path) -> None:
    named = re.findall(r"`(tests/[A-Za-z0-9_/.]+)", document.read_text())
    assert [name for name in named if not (ROOT / name.rstrip(".")).exists()] == []
