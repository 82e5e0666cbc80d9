"""The window over the picture: who leads it, and how calmly it goes."""

from fractions import Fraction

import numpy as np
import pytest

from gpu_runners.pipelines.analysis import Analysis
from gpu_runners.pipelines.autocut.framing import (
    SPEED_MAX,
    Follow,
    Framing,
    frame_subject,
)
from gpu_runners.pipelines.faces import Face, Look
from gpu_runners.pipelines.keep_list import KeepList, KeptRange
from schema.scenes.autocut import Aspect
from tests.support.features import made_up_analysis

WIDE = Fraction(16, 9)
RATE = Fraction(25)


def _keep(*ranges: tuple[int, int]) -> KeepList:
    return KeepList(
        rate=RATE,
        ranges=tuple(
            KeptRange(start_frame=a, end_frame=b, shot=i) for i, (a, b) in enumerate(ranges)
        ),
        target_reached=True,
        poster_frame=0,
    )


def _look(at: float, *faces: tuple[float, float]) -> Look:
    """Faces by the place of their middle from the left, and their size."""
    return Look(
        at=at,
        faces=tuple(Face(x=x, y=0.4, width=size, height=size, score=0.9) for x, size in faces),
    )


def _framed(
    analysis: Analysis,
    looks: tuple[Look, ...] = (),
    keep: KeepList | None = None,
    aspect: Aspect = Aspect.TALL,
    ratio: Fraction = WIDE,
) -> Framing:
    framing = frame_subject(analysis, looks, keep or _keep((0, 250)), ratio, aspect)
    assert framing is not None
    return framing


def test_the_shape_of_the_source_needs_no_window() -> None:
    analysis = made_up_analysis(10, RATE)
    assert frame_subject(analysis, (), _keep((0, 250)), WIDE, Aspect.SOURCE) is None
    assert frame_subject(analysis, (), _keep((0, 250)), WIDE, Aspect.WIDE) is None


def test_a_very_long_picture_is_not_cut() -> None:
    analysis = made_up_analysis(10, RATE)
    assert frame_subject(analysis, (), _keep((0, 250)), Fraction(40), Aspect.SQUARE) is None


def test_the_face_that_is_seen_most_leads_and_a_still_one_holds_the_camera_still() -> None:
    looks = tuple(_look(at / 4, (0.7 + 0.01 * (at % 3), 0.12), (0.2, 0.05)) for at in range(40))
    framing = _framed(made_up_analysis(10, RATE), looks)
    assert framing.follows == (Follow.FACE,)
    assert len(set(framing.middles)) == 1
    assert framing.middles[0] == pytest.approx(0.71, abs=0.005)


def test_a_face_that_walks_is_followed_and_stays_in_the_window() -> None:
    looks = tuple(_look(at / 4, (0.1 + 0.8 * at / 40, 0.1)) for at in range(41))
    framing = _framed(made_up_analysis(10, RATE), looks)
    half = framing.share / 2
    for frame, middle in enumerate(framing.middles):
        face = 0.1 + 0.8 * frame / 250
        assert middle - half <= face - 0.03
        assert face + 0.03 <= middle + half


def test_a_subject_that_jumps_moves_the_camera_no_faster_than_it_may() -> None:
    looks = tuple(_look(at / 4, (0.3 if at % 8 < 4 else 0.7, 0.5)) for at in range(40))
    framing = _framed(made_up_analysis(10, RATE), looks)
    steps = np.abs(np.diff(framing.middles))
    assert steps.max() <= SPEED_MAX / float(RATE) + 1e-4
    assert steps.max() > 0


def test_without_faces_the_camera_follows_what_moves() -> None:
    analysis = made_up_analysis(10, RATE)
    analysis.motion[:] = 1
    analysis.motion_x[:] = np.linspace(0.1, 0.9, 250)
    framing = _framed(analysis)
    assert framing.follows == (Follow.MOTION,)
    middle = framing.middles[50:200]
    assert np.abs(np.array(middle) - analysis.motion_x[50:200]).max() < framing.share / 4


def test_where_nothing_moves_the_camera_looks_where_there_is_something_and_stands() -> None:
    analysis = made_up_analysis(10, RATE)
    analysis.motion[:] = 0
    analysis.detail_x[:] = 0.7
    framing = _framed(analysis)
    assert framing.follows == (Follow.DETAIL,)
    assert len(set(framing.middles)) == 1
    assert 0.6 < framing.middles[0] <= 0.7


def test_each_range_has_a_camera_of_its_own_and_a_middle_for_each_frame() -> None:
    looks = tuple(_look(at / 4, (0.25 if at < 20 else 0.75, 0.1)) for at in range(40))
    framing = _framed(made_up_analysis(10, RATE), looks, _keep((0, 100), (150, 250)))
    assert len(framing.middles) == 200
    assert set(framing.middles[:100]) == {0.25}
    assert set(framing.middles[100:]) == {0.75}


@pytest.mark.parametrize("aspect", [Aspect.TALL, Aspect.SQUARE, Aspect.WIDE])
@pytest.mark.parametrize("ratio", [WIDE, Fraction(9, 16), Fraction(4, 3), Fraction(1)])
def test_the_window_never_leaves_the_picture(aspect: Aspect, ratio: Fraction) -> None:
    analysis = made_up_analysis(10, RATE)
    framing = frame_subject(analysis, (), _keep((0, 250)), ratio, aspect)
    if framing is None:
        assert aspect.ratio == ratio
        return
    assert framing.across == (aspect.ratio is not None and aspect.ratio < ratio)
    half = framing.share / 2
    assert all(half - 1e-4 <= middle <= 1 - half + 1e-4 for middle in framing.middles)


def test_where_the_height_is_cut_a_face_stands_above_the_middle() -> None:
    looks = tuple(_look(at / 4, (0.5, 0.1)) for at in range(40))
    framing = _framed(made_up_analysis(10, RATE), looks, None, Aspect.WIDE, Fraction(9, 16))
    assert not framing.across
    assert framing.middles[0] > 0.4
