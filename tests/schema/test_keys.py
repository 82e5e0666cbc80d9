"""Private fields are sealed for one subject, and erasing its key is the end of them."""

import asyncio
import contextlib
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from schema.wires.keys import FileKeyStore, SealBrokenError

SUBJECT, OTHER = "0123456789abcdefghjk004711", "0123456789abcdefghjk004712"
FIELDS = {"title": "Ferien", "prompt": "ein Strand"}


@pytest.fixture
def store(tmp_path: Path) -> FileKeyStore:
    return FileKeyStore(tmp_path / "keys")


def test_what_is_sealed_is_opened_again_by_any_process(store: FileKeyStore, tmp_path: Path) -> None:
    sealed = store.seal(SUBJECT, FIELDS)
    assert store.open(SUBJECT, sealed) == FIELDS
    assert FileKeyStore(tmp_path / "keys").open(SUBJECT, sealed) == FIELDS
    assert b"Ferien" not in sealed
    assert store.seal(SUBJECT, FIELDS) != sealed


def test_an_erased_subject_is_erased_at_once_in_every_process(
    store: FileKeyStore, tmp_path: Path
) -> None:
    elsewhere = FileKeyStore(tmp_path / "keys")
    sealed, kept = store.seal(SUBJECT, FIELDS), store.seal(OTHER, FIELDS)
    assert elsewhere.open(SUBJECT, sealed) == FIELDS
    assert store.erase(SUBJECT)
    assert elsewhere.open(SUBJECT, sealed) is None
    assert store.open(SUBJECT, sealed) is None
    assert elsewhere.open(OTHER, kept) == FIELDS
    assert not store.erase(SUBJECT)


def test_a_subject_that_comes_back_has_a_new_key(store: FileKeyStore) -> None:
    old = store.seal(SUBJECT, FIELDS)
    store.erase(SUBJECT)
    new = store.seal(SUBJECT, {"title": "neu"})
    assert store.open(SUBJECT, old) is None
    assert store.open(SUBJECT, new) == {"title": "neu"}


def test_the_seal_of_one_subject_says_nothing_under_another(
    store: FileKeyStore, tmp_path: Path
) -> None:
    sealed = store.seal(SUBJECT, FIELDS)
    store.seal(OTHER, FIELDS)
    assert store.open(OTHER, sealed) is None
    [own] = (tmp_path / "keys").glob(f"*/{SUBJECT}")
    [other] = (tmp_path / "keys").glob(f"*/{OTHER}")
    other.write_bytes(own.read_bytes())
    with pytest.raises(SealBrokenError):
        FileKeyStore(tmp_path / "keys").open(OTHER, sealed)


def test_keys_are_readable_by_their_owner_only(store: FileKeyStore, tmp_path: Path) -> None:
    store.seal(SUBJECT, FIELDS)
    [path] = (tmp_path / "keys").glob(f"*/{SUBJECT}")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert [one.name for one in path.parent.iterdir()] == [SUBJECT]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=50)
@given(st.data())
def test_changed_bytes_are_never_opened(store: FileKeyStore, data: st.DataObject) -> None:
    sealed = bytearray(store.seal(SUBJECT, FIELDS))
    place = data.draw(st.integers(0, len(sealed) - 1))
    sealed[place] ^= data.draw(st.integers(1, 255))
    with contextlib.suppress(SealBrokenError):
        assert store.open(SUBJECT, bytes(sealed)) is None


@pytest.mark.parametrize("sealed", [b"", b"\x01", b"\x02" + b"x" * 60, b"title"])
def test_what_was_never_sealed_is_told_apart(store: FileKeyStore, sealed: bytes) -> None:
    with pytest.raises(SealBrokenError):
        store.open(SUBJECT, sealed)


@pytest.mark.parametrize("subject", ["", "../x", "a/b", "a.b", "x" * 81, "ä"])
def test_a_subject_is_never_a_path(store: FileKeyStore, subject: str) -> None:
    with pytest.raises(ValueError, match="subject"):
        store.seal(subject, FIELDS)


async def test_a_key_is_made_off_the_loop_and_once(store: FileKeyStore, tmp_path: Path) -> None:
    await asyncio.gather(*(store.prepare(SUBJECT) for _ in range(20)))
    assert len(list((tmp_path / "keys").glob("*/*"))) == 1


def test_processes_that_make_a_key_at_once_agree_on_one(tmp_path: Path) -> None:
    code = (
        "import sys; from schema.wires.keys import FileKeyStore\n"
        "sys.stdin.readline()\n"
        f"print(FileKeyStore(sys.argv[1]).seal({SUBJECT!r}, {{'a': 'b'}}).hex())"
    )
    started = [
        subprocess.Popen(
            [sys.executable, "-c", code, str(tmp_path / "keys")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(4)
    ]
    for one in started:
        assert one.stdin is not None
        one.stdin.write("\n")
        one.stdin.flush()
    told = [one.communicate()[0].strip() for one in started]
    store = FileKeyStore(tmp_path / "keys")
    assert [store.open(SUBJECT, bytes.fromhex(one)) for one in told] == [{"a": "b"}] * 4
