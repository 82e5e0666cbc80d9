"""Each limit of an installation has its own refusal, and what is within them is taken."""

from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from gpu_runners.pipelines.pictures import load_readers
from gpu_runners.probing.child import judge
from gpu_runners.probing.limits import MaterialLimits
from gpu_runners.probing.verdicts import Asked, Verdict
from schema.refusals import MaterialRefusal as No
from tests.gpu_runners.corpus import Forge, corpus

pytestmark = pytest.mark.media

Look = Callable[[str, MaterialLimits], Verdict]


@pytest.fixture(scope="module")
def look(tmp_path_factory: pytest.TempPathFactory) -> Look:
    """The verdict on a file of the corpus, in this process."""
    load_readers()
    folder = tmp_path_factory.mktemp("limits")
    forge = Forge(folder, 9)
    files = {odd.name: odd for odd in corpus()}

    def looking(name: str, limits: MaterialLimits) -> Verdict:
        place: Path = folder / name
        if not place.exists():
            files[name].make(forge, place)
        return judge(Asked(path=str(place), folder=str(folder), limits=limits))

    return looking


@pytest.mark.parametrize(
    ("name", "limits", "reason"),
    [
        ("h264-aac.mp4", {"bytes_max": 1000}, No.MATERIAL_TOO_LARGE),
        ("h264-aac.mp4", {"seconds_max": 1.5}, No.MATERIAL_TOO_LONG),
        ("h264.ts", {"seconds_max": 1.5}, No.MATERIAL_TOO_LONG),
        ("pcm.wav", {"seconds_max": 1.5}, No.MATERIAL_TOO_LONG),
        ("h264-aac.mp4", {"film_pixels_max": 160 * 120 - 1}, No.PIXELS_TOO_MANY),
        ("plain.jpg", {"picture_pixels_max": 96 * 64 - 1}, No.PIXELS_TOO_MANY),
        ("h264-aac.mp4", {"frames_max": 49}, No.FRAMES_TOO_MANY),
        ("h264-flac.mkv", {"frames_max": 49}, No.FRAMES_TOO_MANY),
        ("rate-240.mp4", {"frame_rate_max": 239}, No.FRAMES_TOO_MANY),
        ("moving.gif", {"picture_frames_max": 4}, No.FRAMES_TOO_MANY),
        ("moving.gif", {"decoded_pixels_max": 96 * 64 * 4}, No.FRAMES_TOO_MANY),
        ("h264-aac.mp4", {"bit_rate_max": 1000}, No.BIT_RATE_TOO_HIGH),
        ("silent-first.mp4", {"streams_max": 2}, No.STREAMS_TOO_MANY),
    ],
)
def test_what_is_beyond_a_limit_is_told_which(
    look: Look, name: str, limits: dict[str, float], reason: No
) -> None:
    verdict = look(name, msgspec.convert(limits, MaterialLimits))
    assert verdict.reason is reason
    assert verdict.detail.endswith(".")
    assert look(name, MaterialLimits()).facts is not None


def test_past_its_time_of_decoding_a_film_is_only_sampled(look: Look) -> None:
    whole = look("fragments.mp4", MaterialLimits()).facts
    sampled = look("fragments.mp4", MaterialLimits(decoded_seconds_max=0)).facts
    assert whole is not None
    assert sampled == whole
