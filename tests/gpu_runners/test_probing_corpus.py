"""Every odd file of the corpus is told what it is or why it is refused, and touches nothing else.

Facts and reasons stand in the corpus, beside the recipe of each file.
"""

import asyncio
import socket
from collections.abc import Generator
from pathlib import Path

import msgspec
import pytest

from gpu_runners.pipelines.pictures import load_readers
from gpu_runners.probing.child import judge
from gpu_runners.probing.limits import MaterialLimits, ProcessLimits
from gpu_runners.probing.sandbox import Sandbox
from gpu_runners.probing.verdicts import Asked, Verdict
from tests.gpu_runners.corpus import CANARY, CASES, Forge, Odd, corpus

pytestmark = [pytest.mark.media, pytest.mark.timeout(400)]

_CORPUS = corpus()
_AT_ONCE = 2
_MILLISECONDS_APART = 60
_PROCESS = ProcessLimits(wall_seconds=60, cpu_seconds=30)


class Seen(msgspec.Struct):
    """The corpus, written and looked at."""

    folder: Path
    verdicts: dict[str, Verdict]
    calls: int
    """Connections that came to the address that the files name."""


@pytest.fixture(scope="module")
def host() -> Generator[socket.socket]:
    """An address that nobody may call."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.settimeout(0)
        yield listening


def _calls(host: socket.socket) -> int:
    count = 0
    while True:
        try:
            caller, _ = host.accept()
        except BlockingIOError:
            return count
        caller.close()
        count += 1


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory, host: socket.socket) -> Seen:
    folder = tmp_path_factory.mktemp("corpus")
    forge = Forge(folder, host.getsockname()[1])
    verdicts = asyncio.run(_look_at_all(forge))
    return Seen(folder, verdicts, _calls(host))


async def _look_at_all(forge: Forge) -> dict[str, Verdict]:
    sandbox = Sandbox(MaterialLimits(), _PROCESS)
    slots = asyncio.Semaphore(_AT_ONCE)

    async def one(number: int, odd: Odd) -> tuple[str, Verdict]:
        async with slots:
            place = forge.folder / str(number) / odd.name
            await asyncio.to_thread(_make, odd, forge, place)
            look = sandbox.look(place, content_type=odd.content_type, seconds_max=odd.seconds_max)
            return odd.name, await look

    return dict(await asyncio.gather(*(one(n, odd) for n, odd in enumerate(_CORPUS))))


def _make(odd: Odd, forge: Forge, place: Path) -> None:
    place.parent.mkdir()
    odd.make(forge, place)


@pytest.mark.parametrize("odd", _CORPUS, ids=lambda odd: ascii(odd.name)[1:-1])
def test_an_odd_file_is_told_what_it_is_or_why_it_is_refused(odd: Odd, seen: Seen) -> None:
    verdict = seen.verdicts[odd.name]
    assert not verdict.fault
    if verdict.facts is None:
        assert odd.either or verdict.reason in odd.reasons, verdict
        assert verdict.detail.endswith(".")
        return
    assert odd.either or not odd.reasons, verdict
    facts = msgspec.to_builtins(verdict.facts)
    for name, wanted in odd.facts.items():
        found = getattr(verdict.facts, name)
        if name.endswith("_ms"):
            assert abs(found - wanted) <= _MILLISECONDS_APART, facts
        else:
            assert found == wanted, facts


def test_no_file_and_no_host_that_an_odd_file_names_is_touched(seen: Seen) -> None:
    assert seen.calls == 0
    assert (seen.folder / "canary.txt").read_bytes() == CANARY
    assert CANARY not in msgspec.json.encode(seen.verdicts)


def test_the_rules_alone_touch_nothing_even_where_the_kernel_defends_nothing(
    tmp_path: Path, host: socket.socket
) -> None:
    """As `judge` runs here: in this process, which has a network and may read everything."""
    load_readers()
    forge = Forge(tmp_path, host.getsockname()[1])
    named = [odd for odd in _CORPUS if odd.name.startswith(("list-", "other-", "reference"))]
    assert len(named) > 20
    for odd in named:
        place = tmp_path / odd.name
        odd.make(forge, place)
        verdict = judge(Asked(path=str(place), folder=str(tmp_path)))
        assert verdict.reason in odd.reasons
        assert CANARY not in msgspec.json.encode(verdict)
    assert _calls(host) == 0


def test_every_case_from_the_field_has_its_files_and_each_refusal_its_own_reason() -> None:
    names = {odd.name: odd for odd in _CORPUS}
    assert list(CASES) == list(range(1, 16))
    assert {name for case in CASES.values() for name in case} <= set(names)
    assert len({names[name].reasons for name in CASES[13]}) == len(CASES[13])


def test_there_are_many_odd_files_of_many_kinds() -> None:
    kinds = {reason for odd in _CORPUS for reason in odd.reasons}
    assert len(_CORPUS) >= 200
    assert len(kinds) >= 16
