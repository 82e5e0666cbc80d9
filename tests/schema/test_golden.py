"""The bytes of every message that was ever on the wire. A file here is written once, never edited.

A message without golden bytes: `python -m tests.schema.test_golden` writes the missing ones.
"""

import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from schema.codec import CODECS, Codec, UnknownVersionError, UnreadableMessageError, encode
from schema.commands import CancelTask, ReportMilestone
from tests.schema.samples import messages, sample

FOLDER = Path(__file__).parent.parent / "golden"
MESSAGES = messages()
GOLDEN = {path.stem: path.read_bytes().removesuffix(b"\n") for path in FOLDER.glob("*.json")}
BY_TAG: dict[str, Codec[Any]] = {tag: codec for codec in CODECS.values() for tag in codec.tags}


@pytest.mark.parametrize("tag", MESSAGES)
def test_a_message_has_golden_bytes_and_still_writes_them(tag: str) -> None:
    assert tag in GOLDEN, "write them with: python -m tests.schema.test_golden"
    written = msgspec.json.decode(encode(sample(MESSAGES[tag])))
    golden = msgspec.json.decode(GOLDEN[tag])
    # A field that was added since (it has a default) is in none of the older bytes.
    assert _added(written, golden)


def _added(written: Any, golden: Any) -> bool:  # noqa: ANN401 - JSON
    """Whether `written` is `golden` and more fields, at any depth."""
    if isinstance(written, dict) and isinstance(golden, dict):
        return all(name in written and _added(written[name], golden[name]) for name in golden)
    if isinstance(written, list) and isinstance(golden, list):
        return len(written) == len(golden) and all(map(_added, written, golden))
    return bool(written == golden)


@pytest.mark.parametrize("tag", sorted(GOLDEN))
def test_golden_bytes_are_read_and_lose_nothing(tag: str) -> None:
    codec = BY_TAG[tag] if tag in BY_TAG else _codec_that_lifts(tag)
    message = codec.decode(GOLDEN[tag])
    if tag in BY_TAG:
        assert _added(msgspec.json.decode(encode(message)), msgspec.json.decode(GOLDEN[tag]))


def _codec_that_lifts(tag: str) -> Codec[Any]:
    """The codec of the newest version of a message that has none of this one any more."""
    name = tag.rpartition(".v")[0]
    newest = max(other for other in BY_TAG if other.rpartition(".v")[0] == name)
    return BY_TAG[newest]


@pytest.mark.parametrize("tag", MESSAGES)
def test_bytes_of_a_message_are_stable_and_complete(tag: str) -> None:
    full = sample(MESSAGES[tag])
    once = encode(full)
    assert encode(BY_TAG[tag].decode(once)) == once
    assert BY_TAG[tag].decode(once) == full
    assert set(msgspec.json.decode(once)) == {"type", *full.__struct_fields__}


def test_a_field_that_is_gone_or_of_another_type_turns_the_check_red() -> None:
    golden = {"type": "x.v1", "a": 1, "b": [{"c": "d"}]}
    assert not _added({"type": "x.v1", "b": [{"c": "d"}]}, golden)
    assert not _added({"type": "x.v1", "a": "1", "b": [{"c": "d"}]}, golden)
    assert not _added({"type": "x.v1", "a": 1, "b": [{}]}, golden)
    assert _added({"type": "x.v1", "a": 1, "b": [{"c": "d", "new": 1}], "more": 2}, golden)


def test_an_unknown_version_is_not_judged() -> None:
    codec = BY_TAG["task.cancel.v1"]
    for tag in ("task.cancel.v2", "task.unheard_of.v1", "quota.top_up.v1"):
        with pytest.raises(UnknownVersionError):
            codec.decode(b'{"type":"' + tag.encode() + b'","command_id":"c"}')


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b'"task.cancel.v1"',
        b"{}",
        b'{"type":7}',
        b'{"type":"task.cancel.v1"}',
        b'{"type":"no wire name"}',
        b'{"type":"task.cancel.v"}',
        b'{"type":"task.cancel.vX"}',
        b"\xff\xfe",
        b'{"type":"task.cancel.v1","command_id":7,"task_id":"t","user_id":"u","tenant_id":""}',
        b"[" * 100_000,
    ],
)
def test_bytes_that_are_no_message_are_unreadable(data: bytes) -> None:
    with pytest.raises(UnreadableMessageError):
        BY_TAG["task.cancel.v1"].decode(data)


def test_an_unknown_field_is_ignored() -> None:
    known = sample(CancelTask)
    more = {**msgspec.json.decode(encode(known)), "field_of_a_newer_release": [1, 2]}
    assert BY_TAG["task.cancel.v1"].decode(msgspec.json.encode(more)) == known


def test_an_older_version_is_lifted_step_by_step() -> None:
    def first(fields: dict[str, Any]) -> dict[str, Any]:
        return {**fields, "type": "task.milestone.v0b", "token": fields["attempt"]}

    def second(fields: dict[str, Any]) -> dict[str, Any]:
        return {**fields, "type": "task.milestone.v1", "percent": fields["share"] * 100}

    codec: Codec[ReportMilestone] = Codec(
        ReportMilestone, {"task.milestone.v0": first, "task.milestone.v0b": second}
    )
    old = b'{"type":"task.milestone.v0","command_id":"c","task_id":"t","attempt":2,"share":1}'
    assert codec.decode(old) == ReportMilestone(
        command_id=sample(ReportMilestone).command_id[:0] + "c",
        task_id=sample(ReportMilestone).task_id[:0] + "t",
        token=2,
        percent=100,
    )
    broken = b'{"type":"task.milestone.v0","command_id":"c","task_id":7,"attempt":2,"share":1}'
    with pytest.raises(UnreadableMessageError):
        codec.decode(broken)


def write_missing() -> list[str]:
    """Write golden bytes of the messages that have none; never touches one that is there."""
    FOLDER.mkdir(exist_ok=True)
    missing = [tag for tag in MESSAGES if not (FOLDER / f"{tag}.json").exists()]
    for tag in missing:
        (FOLDER / f"{tag}.json").write_bytes(encode(sample(MESSAGES[tag])) + b"\n")
    return missing


if __name__ == "__main__":
    sys.stdout.write("\n".join(write_missing()) + "\n")
