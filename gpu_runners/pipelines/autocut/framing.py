"""Where the picture is cut to another shape: a camera that follows the subject, calm and bounded.

In each kept range the camera is its own. The subject is the face that is seen most, else the
middle of what moves, else that of what there is to see. A subject that fits into the window is
watched by a camera that stands still; another is followed on a smooth path of bounded speed. Only
one side of the picture is ever cut, so a path is one number a frame. Lettering is no subject to
follow: what is wider than the window is shown whole, and what is not stands still in it.
"""

from enum import StrEnum
from fractions import Fraction

import msgspec
import numpy as np
from numpy.typing import NDArray

from gpu_runners.pipelines.analysis import Analysis
from gpu_runners.pipelines.autocut.cards import Card, find_card
from gpu_runners.pipelines.autocut.lettering import CardLook
from gpu_runners.pipelines.faces import Face, Look
from gpu_runners.pipelines.fitting import Fit
from gpu_runners.pipelines.keep_list import KeepList, KeptRange
from schema.scenes.autocut import Aspect

Path1 = NDArray[np.float64]
"""A position for each frame, 0 to 1 of the picture."""

CROP_RATIO_MAX = 6.0
"""A picture that is longer than this against the window keeps its shape, with bars."""

SPEED_MAX = 0.45
"""Of the picture's side, a second."""
_SMOOTH_SECONDS = 0.45
_FITS = 0.5
"""A subject whose ways, less half of its size, span less than this part of the window needs no
moving camera."""
_FITS_SURELY = 0.08
_FACE_LIFT = 0.1
"""Where height is cut, a face stands this part of the window above its middle."""
_FACE_SHARE_MIN = 0.15
"""Of the looks at a range, in which a face must be seen to lead the camera."""
_SAME_FACE = 0.9
"""A face that has moved by less than its size since the last look is the same one."""
_MOTION_SURE = 0.3
"""As much motion says where it is; less is heard less."""
_MOTION_LEADS = 0.5
"""Of being sure, from which on motion alone leads."""
_DETAIL_PULL = 0.9
"""How far the camera leaves the middle for what there is to see."""


class Follow(StrEnum):
    """Who led the camera in a range."""

    FACE = "face"
    MOTION = "motion"
    DETAIL = "detail"
    LETTERING = "lettering"


class Framing(msgspec.Struct, frozen=True, kw_only=True):
    """The window of a film within its source."""

    across: bool
    """The width is cut; if not, the height."""
    share: float
    """Part of that side that stays, below 1."""
    middles: tuple[float, ...]
    """Middle of the window for each frame of the film, 0 to 1 of that side."""
    follows: tuple[Follow, ...]
    """For each kept range."""
    fits: tuple[Fit | None, ...]
    """For each kept range, how it is shown if not through the window: lettering that is wider."""


def frame_subject(
    analysis: Analysis,
    looks: tuple[Look, ...],
    keep: KeepList,
    source_ratio: Fraction,
    aspect: Aspect,
    cards: tuple[CardLook, ...] = (),
) -> Framing | None:
    """Lay the window for every frame of the film; None where nothing is to be cut off.

    `source_ratio` is width by height of the picture as it is shown.
    """
    wanted = aspect.ratio
    if wanted is None or abs(wanted / source_ratio - 1) < 0.01:  # noqa: PLR2004 - a pixel or two
        return None
    share = float(min(wanted / source_ratio, source_ratio / wanted))
    if share < 1 / CROP_RATIO_MAX:
        return None
    across = wanted < source_ratio
    paths: list[Path1] = []
    follows: list[Follow] = []
    fits: list[Fit | None] = []
    for kept in keep.ranges:
        start, end = (float(at / keep.rate) for at in (kept.start_frame, kept.end_frame))
        card = find_card(cards, looks, start, end, across=across)
        if card is None:
            path, follow = _path(analysis, looks, kept, keep.rate, share=share, across=across)
        else:
            path, follow = _held(card, kept.frames, share), Follow.LETTERING
        paths.append(path)
        follows.append(follow)
        fits.append(_fit(card, share, across=across) if card is not None else None)
    return Framing(
        across=across,
        share=share,
        middles=tuple(round(float(middle), 5) for middle in np.concatenate(paths)),
        follows=tuple(follows),
        fits=tuple(fits),
    )


def _fit(card: Card, share: float, *, across: bool) -> Fit | None:
    """How a card is shown that is wider than the window."""
    if card.share <= share:
        return None
    return Fit(
        middle=round(card.middle, 4),
        share=round(card.share, 4),
        plain=card.level_rim if across else card.upright_rim,
    )


def _held(card: Card, frames: int, share: float) -> Path1:
    """The window standing still around a card."""
    return np.full(frames, np.clip(card.middle, share / 2, 1 - share / 2))


def _path(
    analysis: Analysis,
    looks: tuple[Look, ...],
    kept: KeptRange,
    rate: Fraction,
    *,
    share: float,
    across: bool,
) -> tuple[Path1, Follow]:
    times = np.arange(kept.start_frame, kept.end_frame, dtype=np.float64)
    times = (times + 0.5) / float(rate)
    follow, size = Follow.FACE, 0.0
    seen = None
    track = _leading_face(looks, times)
    if track:
        lift = 0.0 if across else _FACE_LIFT * share
        places = np.array([(f.x if across else f.y) + lift for _, f in track])
        seen = np.interp(times, np.array([at for at, _ in track]), places)
        size = float(np.median([f.width if across else f.height for _, f in track]))
    if seen is None:
        seen, moves = _motion_path(analysis, times, across=across)
        follow = Follow.MOTION if moves else Follow.DETAIL
    low, high = share / 2, 1 - share / 2
    least, most = np.percentile(seen, [3, 97])
    if most - least < max(_FITS_SURELY * share, _FITS * share - size / 2):
        middle = (least + most) / 2 if follow is Follow.FACE else float(np.median(seen))
        return np.full(len(times), np.clip(middle, low, high)), follow
    smooth = _smooth(seen, max(1, round(_SMOOTH_SECONDS * rate)))
    bounded = _bounded(np.clip(smooth, low, high), SPEED_MAX / float(rate))
    return _smooth(bounded, max(1, round(_SMOOTH_SECONDS / 2 * rate))), follow


def _leading_face(looks: tuple[Look, ...], times: Path1) -> list[tuple[float, Face]]:
    """The face that is seen longest and largest, look by look; none if hardly any is seen."""
    within = [look for look in looks if times[0] - 0.2 <= look.at <= times[-1] + 0.2]
    tracks: list[list[tuple[float, Face]]] = []
    for look in within:
        taken: set[int] = set()
        for face in look.faces:
            nearest = min(
                (i for i in range(len(tracks)) if i not in taken),
                key=lambda i: _apart(tracks[i][-1][1], face),
                default=None,
            )
            if nearest is None or _apart(tracks[nearest][-1][1], face) > _SAME_FACE:
                tracks.append([])
                nearest = len(tracks) - 1
            taken.add(nearest)
            tracks[nearest].append((look.at, face))
    if not tracks:
        return []
    leading = max(tracks, key=lambda track: sum(f.width * f.height * f.score for _, f in track))
    if len(leading) < max(1.0, _FACE_SHARE_MIN * len(within)):
        return []
    return leading


def _apart(one: Face, other: Face) -> float:
    """Distance of two faces, in sizes of a face; faces of other sizes are further apart."""
    size = max(one.width, other.width, 1e-6), max(one.height, other.height, 1e-6)
    distance = np.hypot((one.x - other.x) / size[0], (one.y - other.y) / size[1])
    return float(distance + abs(np.log(max(one.width, 1e-6) / max(other.width, 1e-6))) / 2)


def _motion_path(analysis: Analysis, times: Path1, *, across: bool) -> tuple[Path1, bool]:
    """Where the picture moves; where little does, where there is most to see.

    Also whether motion led for more than half of the time.
    """
    first, last = np.searchsorted(analysis.instants, [times[0], times[-1]], side="right")
    rows = slice(max(0, int(first) - 1), max(int(first), int(last)))
    motion = analysis.motion[rows].astype(np.float64)
    places = (analysis.motion_x if across else analysis.motion_y)[rows].astype(np.float64)
    detail = (analysis.detail_x if across else analysis.detail_y)[rows].astype(np.float64)
    calm = 0.5 + _DETAIL_PULL * (np.median(detail) - 0.5)
    sure = np.clip(motion / _MOTION_SURE, 0, 1)
    steps = max(1, len(motion) // max(1, round(float(times[-1] - times[0]) / 0.5)))
    total = _smooth(sure, steps)
    led = _smooth(places * sure, steps) / np.maximum(total, 1e-6)
    held = np.clip(total / _MOTION_LEADS, 0, 1)
    path = calm + (led - calm) * held
    return np.interp(times, analysis.instants[rows], path), float(held.mean()) > 0.5  # noqa: PLR2004


def _smooth(row: Path1, frames: int) -> Path1:
    """A bell-shaped mean over about two times that many frames, level at both ends."""
    reach = 2 * frames
    kernel = np.exp(-0.5 * (np.arange(-reach, reach + 1) / frames) ** 2)
    padded = np.pad(row, reach, mode="edge")
    smooth: Path1 = np.convolve(padded, kernel / kernel.sum(), mode="valid").astype(np.float64)
    return smooth


def _bounded(path: Path1, step_max: float) -> Path1:
    """The path with no step above that, neither early nor late: the mean of both ways."""
    ways: list[Path1] = []
    for row in (path, path[::-1]):
        way = row.copy()
        for i in range(1, len(way)):
            way[i] = way[i - 1] + np.clip(row[i] - way[i - 1], -step_max, step_max)
        ways.append(way)
    return (ways[0] + ways[1][::-1]) / 2
