"""AutoCut on the corpus of odd files: a film, or a refusal that says what to do; never a hang.

A part of it here; all of it with `CUTLOG_TEST_ODD_FILES=all` (some ten minutes).
"""

import os
import socket
from collections.abc import Generator
from pathlib import Path

import pytest

from gpu_runners.pipelines.pipeline import InputError, InputReason
from tests.gpu_runners.conftest import Film, MakeFilm
from tests.gpu_runners.corpus import CANARY, Forge, Odd, corpus

pytestmark = [pytest.mark.media, pytest.mark.timeout(300)]

_FILMS = (
    "vp9-alpha.webm",
    "reserved-colours.mp4",
    "gbr-matrix-on-yuv.mp4",
    "turned-90.mp4",
    "camera.m2ts",
    "sound-7.1.mkv",
    "sound-is-longer.mp4",
    "concat:a|b.mp4",
    "%03d.mp4",
    "iphone.mov",
    "samsung-90.mp4",
    "late-picture.mov",
    "hdr10.mp4",
    "slow-motion.mov",
)
"""Films that a part of the tests makes."""
_REFUSED = ("list-", "other-", "double-", "bomb", "open-", "cut-", "single", "two-sizes", "codec-")
"""Beginnings of the names of files that it refuses: that costs little."""


def _chosen() -> list[Odd]:
    everything = os.environ.get("CUTLOG_TEST_ODD_FILES") == "all"
    return [
        odd
        for odd in corpus()
        if everything or odd.name in _FILMS or (odd.reasons and odd.name.startswith(_REFUSED))
    ]


@pytest.fixture(scope="module")
def host() -> Generator[socket.socket]:
    """An address that nobody may call."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.settimeout(0)
        yield listening


@pytest.fixture(scope="module")
def forge(tmp_path_factory: pytest.TempPathFactory, host: socket.socket) -> Forge:
    return Forge(tmp_path_factory.mktemp("forge"), host.getsockname()[1])


@pytest.mark.parametrize("odd", _chosen(), ids=lambda odd: ascii(odd.name)[1:-1])
def test_an_odd_file_ends_in_a_film_or_a_clear_refusal(
    odd: Odd, forge: Forge, host: socket.socket, make_film: MakeFilm, tmp_path: Path
) -> None:
    folder = tmp_path / "given"
    folder.mkdir()
    source = folder / odd.name
    odd.make(forge, source)
    film, refused = _made(make_film, source)
    if film is None:
        assert not odd.film, refused
        assert refused is not None
        assert refused.message.endswith(".")
        assert refused.reason in set(InputReason)
    else:
        assert odd.film or odd.either or not odd.reasons or _is_for_the_prober(odd)
        assert film.facts.frames > 0
        for written in (film.path, film.poster):
            assert CANARY not in written.read_bytes()
    with pytest.raises(BlockingIOError):
        host.accept()


def _made(make_film: MakeFilm, source: Path) -> tuple[Film | None, InputError | None]:
    try:
        return make_film(source, target_seconds=1), None
    except InputError as refused:
        return None, refused


_FOR_THE_PROBER = (
    "double-zip",
    "double-page",
    "film-as",
    "longer-than",
    "many-",
    "other-",
    "open-",
)


def _is_for_the_prober(odd: Odd) -> bool:
    """Whether it may be a film here all the same.

    What else it is, or names, harms those who keep and serve it; a film that ends early is one.
    """
    return odd.name.startswith(_FOR_THE_PROBER)
