"""The edit: which ranges of a source make the film, in frames of the film's own steady rate.

Pure and deterministic: the same features give the same list. Ranges stay inside one shot and clear
of dead air, keep their order, are spread over the shots, and add up to the target to the frame if
there is enough material.
"""

import itertools
from fractions import Fraction

import msgspec
import numpy as np
from numpy.typing import NDArray

from gpu_runners.pipelines.analysis import WINDOW_SECONDS, Analysis, Floats
from gpu_runners.pipelines.silence import Span

Frames = NDArray[np.int64]

TARGET_TOLERANCE_SECONDS = 0.5

_CUT_MARGIN_FRAMES = 1
"""Distance kept from a cut, so that no frame of the neighbouring shot flashes up."""

_PIECE_SECONDS_MAX = 8.0
"""A longer shot is judged in pieces, so that the film shows more of it than one moment."""

_SHORT_SECONDS_MIN = 0.4
"""If there is too little, ranges shorter than asked are taken, down to this."""

_RATES = tuple(
    Fraction(*rate)
    for rate in (
        (10, 1), (12, 1), (15, 1), (24000, 1001), (24, 1), (25, 1),
        (30000, 1001), (30, 1), (48, 1), (50, 1), (60000, 1001), (60, 1),
    )
)  # fmt: skip
_RATE_LIKE = 0.02


class KeptRange(msgspec.Struct, frozen=True, kw_only=True):
    """One range of the source, half open, in frames of the film's rate."""

    start_frame: int
    end_frame: int
    shot: int
    """Number of the shot in the source, from 0."""

    @property
    def frames(self) -> int:
        return self.end_frame - self.start_frame


class KeepList(msgspec.Struct, frozen=True, kw_only=True):
    rate: Fraction
    ranges: tuple[KeptRange, ...]
    target_reached: bool
    """Within half a second of the target; if not, there was too little material."""
    poster_frame: int
    """The most telling frame, counted in the film."""

    @property
    def frames(self) -> int:
        return sum(kept.frames for kept in self.ranges)

    @property
    def seconds(self) -> float:
        return float(self.frames / self.rate)


class Wish(msgspec.Struct, frozen=True, kw_only=True):
    """What the edit shall be like."""

    target_seconds: float
    shot_seconds_min: float


def film_rate(analysis: Analysis, claimed: Fraction | None) -> Fraction:
    """The steady rate of the film: the source's own if it has one, else the usual one next to it.

    Judged from the instants of the frames: what a container says of its rate may be wrong.
    """
    steps = np.diff(analysis.instants)
    steps = steps[steps > 0]
    if not len(steps):
        return Fraction(25)
    usual = float(np.median(steps))
    steady = steps[np.abs(steps - usual) < usual / 4]
    measured = 1 / float(steady.mean())
    if claimed and _RATES[0] <= claimed <= _RATES[-1] and _like(claimed, measured):
        return claimed
    return min(_RATES, key=lambda rate: abs(float(rate) - measured))


def make_keep_list(
    analysis: Analysis, cuts: tuple[float, ...], dead: tuple[Span, ...], rate: Fraction, wish: Wish
) -> KeepList:
    """Choose the ranges, none if all is dead air. `dead` are spans that no range may touch."""
    total = int(analysis.seconds * rate)
    interest = _interest(analysis, rate, total)
    target = max(1, round(wish.target_seconds * rate))
    tolerance = int(TARGET_TOLERANCE_SECONDS * rate)
    least = max(1, int(wish.shot_seconds_min * rate))
    pieces = _pieces(_live_ranges(cuts, dead, rate, total), rate, least)
    usable = [piece for piece in pieces if piece.frames >= least]
    if sum(piece.frames for piece in usable) < target - tolerance:
        floor = int(_SHORT_SECONDS_MIN * rate)
        usable = [piece for piece in pieces if piece.frames >= floor]
    available = sum(piece.frames for piece in usable)
    chosen = usable if available <= target else _choose(usable, interest, target, least)
    ranges = _joined(chosen)
    reached = abs(sum(kept.frames for kept in ranges) - target) <= tolerance
    return KeepList(
        rate=rate,
        ranges=ranges,
        target_reached=reached,
        poster_frame=_poster(analysis, ranges, rate),
    )


def _like(rate: Fraction, measured: float) -> bool:
    return abs(float(rate) - measured) < _RATE_LIKE * measured


def _live_ranges(
    cuts: tuple[float, ...], dead: tuple[Span, ...], rate: Fraction, total: int
) -> list[KeptRange]:
    """Every shot less its dead air; a frame that touches dead air is out."""
    alive = np.ones(total, dtype=bool)
    for span in dead:
        first = max(0, int(np.floor(span.start * float(rate) + 1e-6)))
        alive[first : max(first, int(np.ceil(span.end * float(rate) - 1e-6)))] = False
    borders = [0, *(round(cut * rate) for cut in cuts), total]
    ranges: list[KeptRange] = []
    for shot, (start, end) in enumerate(itertools.pairwise(borders)):
        first = start + (_CUT_MARGIN_FRAMES if shot else 0)
        last = max(first, end - (_CUT_MARGIN_FRAMES if end < total else 0))
        marks = np.diff(alive[first:last].astype(np.int8), prepend=0, append=0)
        edges = np.flatnonzero(marks) + first
        ranges += [
            KeptRange(start_frame=int(a), end_frame=int(b), shot=shot)
            for a, b in zip(edges[::2], edges[1::2], strict=True)
        ]
    return ranges


def _pieces(ranges: list[KeptRange], rate: Fraction, least: int) -> list[KeptRange]:
    """Long ranges in equal pieces."""
    longest = max(least, int(_PIECE_SECONDS_MAX * rate))
    pieces: list[KeptRange] = []
    for whole in ranges:
        count = -(-whole.frames // longest)
        borders = [whole.start_frame + whole.frames * i // count for i in range(count + 1)]
        pieces += [
            KeptRange(start_frame=a, end_frame=b, shot=whole.shot)
            for a, b in itertools.pairwise(borders)
        ]
    return pieces


def _choose(pieces: list[KeptRange], interest: Floats, target: int, least: int) -> list[KeptRange]:
    """Parts of the pieces that add up to the target: each its best moment, lively ones longer."""
    score = [float(interest[p.start_frame : p.end_frame].mean()) for p in pieces]
    count = max(1, min(len(pieces), target // least))
    best = sorted(sorted(range(len(pieces)), key=lambda i: (-score[i], i))[:count])
    kept = [pieces[i] for i in best]
    limits = np.array([p.frames for p in kept])
    while limits.sum() < target:  # few long pieces beat many: take back the best of the rest
        rest = [i for i in range(len(pieces)) if i not in best]
        best = sorted([*best, min(rest, key=lambda i: (-score[i], i))])
        kept = [pieces[i] for i in best]
        limits = np.array([p.frames for p in kept])
    weights = np.array([0.5 + score[i] for i in best])
    lengths = _lengths(weights, limits, np.minimum(limits, least), target)
    chosen: list[KeptRange] = []
    for piece, length in zip(kept, lengths, strict=True):
        sums = np.concatenate([[0.0], np.cumsum(interest[piece.start_frame : piece.end_frame])])
        windows = sums[length:] - sums[: len(sums) - length]
        start = piece.start_frame + int(np.argmax(windows))
        if length:
            chosen.append(KeptRange(start_frame=start, end_frame=start + length, shot=piece.shot))
    return chosen


def _lengths(weights: NDArray[np.float64], limits: Frames, least: Frames, target: int) -> list[int]:
    """Frames of each piece, `target` in all: by weight, between `least` and its limit."""
    low, high = 0.0, float(target) / float(weights.min())
    for _ in range(60):
        level = (low + high) / 2
        if np.clip(level * weights, least, limits).sum() < target:
            low = level
        else:
            high = level
    exact = np.clip(high * weights, least, limits)
    lengths = np.floor(exact).astype(int)
    order = np.argsort(-(exact - lengths), kind="stable")
    missing = target - int(lengths.sum())
    while missing:
        step = 1 if missing > 0 else -1
        for index in order:
            within = lengths[index] < limits[index] if step > 0 else lengths[index] > 0
            if missing and within:
                lengths[index] += step
                missing -= step
    return [int(length) for length in lengths]


def _joined(ranges: list[KeptRange]) -> tuple[KeptRange, ...]:
    """Ranges that touch within a shot are one."""
    joined: list[KeptRange] = []
    for kept in ranges:
        if joined and joined[-1].end_frame == kept.start_frame and joined[-1].shot == kept.shot:
            kept = KeptRange(  # noqa: PLW2901 - grows by the one before
                start_frame=joined.pop().start_frame, end_frame=kept.end_frame, shot=kept.shot
            )
        joined.append(kept)
    return tuple(joined)


def _interest(analysis: Analysis, rate: Fraction, total: int) -> Floats:
    """How much a frame of the film's rate is worth watching, 0 to 1."""
    shown = _shown(analysis, rate, total)
    motion = _scaled(analysis.change)[shown]
    sharp = _scaled(analysis.sharpness)[shown]
    if not len(analysis.power):
        silent: Floats = (0.6 * motion + 0.4 * sharp).astype(np.float32)
        return silent
    windows = (np.arange(total) / (float(rate) * WINDOW_SECONDS)).astype(np.int64)
    loud = _scaled(np.sqrt(analysis.power))[np.minimum(windows, len(analysis.power) - 1)]
    interest: Floats = (0.45 * loud + 0.35 * motion + 0.2 * sharp).astype(np.float32)
    return interest


def _shown(analysis: Analysis, rate: Fraction, total: int) -> NDArray[np.intp]:
    """Index of the decoded frame that each frame of the film's rate shows."""
    middles = (np.arange(total) + 0.5) / float(rate)
    return np.maximum(0, np.searchsorted(analysis.instants, middles, side="right") - 1)


def _scaled(values: Floats) -> Floats:
    top = float(np.percentile(values, 90))
    scaled: Floats = np.clip(values / (top or 1.0), 0.0, 1.0).astype(np.float32)
    return scaled


def _poster(analysis: Analysis, ranges: tuple[KeptRange, ...], rate: Fraction) -> int:
    """The sharpest, most colourful, well lit frame that does not stand at the edge of its range."""
    if not ranges:
        return 0
    shown = _shown(analysis, rate, ranges[-1].end_frame)
    light = 1 - np.abs(analysis.luma / 127.5 - 1)
    steady = 1 - _scaled(analysis.change)
    worth = (
        _scaled(analysis.sharpness)
        + _scaled(analysis.colour)
        + _scaled(analysis.contrast)
        + light
        + 0.5 * steady
    )[shown]
    best, best_worth, before = 0, -1.0, 0
    for kept in ranges:
        inset = min(3, (kept.frames - 1) // 2)
        part = worth[kept.start_frame + inset : kept.end_frame - inset]
        place = int(np.argmax(part))
        if part[place] > best_worth:
            best, best_worth = before + inset + place, float(part[place])
        before += kept.frames
    return best
