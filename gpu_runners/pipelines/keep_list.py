"""The edit: which ranges of a source make the film, in frames of the film's own steady rate.

Pure and deterministic: the same features give the same list. Ranges stay inside one shot and clear
of dead air, keep their order, are spread over the shots, and add up to the target to the frame if
there is enough material. They do not begin or end within a word if that can be helped, and where
there is a beat, the joins of the film lie on it.
"""

import itertools
from fractions import Fraction

import msgspec
import numpy as np
from numpy.typing import NDArray

from gpu_runners.pipelines.analysis import WINDOW_SECONDS, Analysis, Floats
from gpu_runners.pipelines.faces import Look
from gpu_runners.pipelines.silence import Span

Frames = NDArray[np.int64]

TARGET_TOLERANCE_SECONDS = 0.5

_CUT_MARGIN_FRAMES = 1
"""Distance kept from a cut, so that no frame of the neighbouring shot flashes up."""

_PIECE_SECONDS_MAX = 8.0
"""A longer shot is judged in pieces, so that the film shows more of it than one moment."""

_SHORT_SECONDS_MIN = 0.4
"""If there is too little, ranges shorter than asked are taken, down to this."""

_FEWER_PARTS_MAX = 3
"""So many parts less than fit are tried for the sake of joins on beats."""

_JUMP_SECONDS_MAX = 1.0
"""A shot does not go on after a gap shorter than this: it would look like a fault."""

_WORD_COST = 0.25
"""How much a border within a word spoils a range: this part of the most that it can be worth."""

_FACE_HEIGHT_FULL = 0.3
"""A face of this part of the picture's height is worth all that a face can be."""
_FACE_ON_POSTER = 3.0
_LOOK_REACHES_SECONDS = 0.16
"""A face is taken to be there so long before and after it was seen."""

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
    margin_seconds: float = 0.1
    """Distance of a range's borders from speech."""


class Signs(msgspec.Struct, frozen=True, kw_only=True):
    """What else is known of a source; each may be empty."""

    speech: tuple[Span, ...] = ()
    looks: tuple[Look, ...] = ()
    source_beats: tuple[float, ...] = ()
    """Of the source's own music: ranges begin and end on them, in seconds of the source."""
    film_beats: tuple[float, ...] = ()
    """Of the music laid under the film: its joins lie on them, in seconds of the film."""


NO_SIGNS = Signs()


class _Piece(msgspec.Struct, frozen=True, kw_only=True):
    """Frames that may be kept."""

    start: int
    end: int
    shot: int
    live: int
    """Number of the unbroken stretch that it is of."""

    @property
    def frames(self) -> int:
        return self.end - self.start


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
    analysis: Analysis,
    cuts: tuple[float, ...],
    dead: tuple[Span, ...],
    rate: Fraction,
    wish: Wish,
    signs: Signs = NO_SIGNS,
) -> KeepList:
    """Choose the ranges, none if all is dead air. `dead` are spans that no range may touch."""
    total = int(analysis.seconds * rate)
    interest = _interest(analysis, rate, total, signs)
    target = max(1, round(wish.target_seconds * rate))
    tolerance = int(TARGET_TOLERANCE_SECONDS * rate)
    least = max(1, int(wish.shot_seconds_min * rate))
    live = _live_ranges(cuts, dead, rate, total)
    usable = [piece for piece in live if piece.frames >= least]
    if sum(piece.frames for piece in usable) < target - tolerance:
        floor = int(_SHORT_SECONDS_MIN * rate)
        usable = [piece for piece in live if piece.frames >= floor]
    film_beats = np.round(np.array(signs.film_beats) * float(rate)).astype(np.int64)
    if sum(piece.frames for piece in usable) <= target:
        limits = np.array([piece.frames for piece in usable], dtype=np.int64)
        lengths = list(map(int, limits))
        if len(film_beats) and len(usable) > 1:
            lengths = _shortened_to_beats(limits, least, film_beats)
        chosen = [
            msgspec.structs.replace(piece, end=piece.start + length)
            for piece, length in zip(usable, lengths, strict=True)
        ]
    else:
        cutter = _Cutter(interest, signs, rate, wish, film_beats)
        chosen = cutter.choose(_pieces(usable, rate, least), target, least)
    ranges = _joined(_without_jumps(chosen, int(_JUMP_SECONDS_MAX * rate)))
    reached = abs(sum(kept.frames for kept in ranges) - target) <= tolerance
    return KeepList(
        rate=rate,
        ranges=ranges,
        target_reached=reached,
        poster_frame=_poster(analysis, ranges, rate, signs.looks),
    )


def _like(rate: Fraction, measured: float) -> bool:
    return abs(float(rate) - measured) < _RATE_LIKE * measured


def _live_ranges(
    cuts: tuple[float, ...], dead: tuple[Span, ...], rate: Fraction, total: int
) -> list[_Piece]:
    """Every shot less its dead air; a frame that touches dead air is out."""
    alive = np.ones(total, dtype=bool)
    for span in dead:
        first = max(0, int(np.floor(span.start * float(rate) + 1e-6)))
        alive[first : max(first, int(np.ceil(span.end * float(rate) - 1e-6)))] = False
    borders = [0, *(round(cut * rate) for cut in cuts), total]
    ranges: list[_Piece] = []
    for shot, (start, end) in enumerate(itertools.pairwise(borders)):
        first = start + (_CUT_MARGIN_FRAMES if shot else 0)
        last = max(first, end - (_CUT_MARGIN_FRAMES if end < total else 0))
        marks = np.diff(alive[first:last].astype(np.int8), prepend=0, append=0)
        edges = np.flatnonzero(marks) + first
        ranges += [
            _Piece(start=int(a), end=int(b), shot=shot, live=len(ranges) + i)
            for i, (a, b) in enumerate(zip(edges[::2], edges[1::2], strict=True))
        ]
    return ranges


def _pieces(ranges: list[_Piece], rate: Fraction, least: int) -> list[_Piece]:
    """Long ranges in equal pieces."""
    longest = max(least, int(_PIECE_SECONDS_MAX * rate))
    pieces: list[_Piece] = []
    for whole in ranges:
        count = -(-whole.frames // longest)
        borders = [whole.start + whole.frames * i // count for i in range(count + 1)]
        pieces += [
            msgspec.structs.replace(whole, start=a, end=b) for a, b in itertools.pairwise(borders)
        ]
    return pieces


class _Cutter:
    """Chooses parts of pieces, more than enough of them being there."""

    def __init__(
        self, interest: Floats, signs: Signs, rate: Fraction, wish: Wish, film_beats: Frames
    ) -> None:
        self._interest = interest.astype(np.float64)
        self._sums = np.concatenate([[0.0], np.cumsum(self._interest)])
        self._in_word = _in_words(signs.speech, rate, len(interest), wish.margin_seconds)
        self._film_beats = film_beats
        beats = np.round(np.array(signs.source_beats) * float(rate)).astype(np.int64)
        self._source_beats = beats if not len(film_beats) else beats[:0]

    def choose(self, pieces: list[_Piece], target: int, least: int) -> list[_Piece]:
        """Parts that add up to the target: each its best moment, lively ones longer."""
        shortest_cut = self._whole_beats(least)
        roomy = [piece for piece in pieces if piece.frames > shortest_cut]
        if sum(piece.frames for piece in roomy) >= target:
            pieces = roomy
        score = [self._worth(p.start, p.end) / p.frames for p in pieces]
        most = max(1, min(len(pieces), target // shortest_cut))
        kept, lengths, off = self._shares(pieces, score, most, target, least)
        # As many parts as fit may leave no room to begin on a beat; one less is a whole part of it.
        for count in range(most - 1, max(0, most - 1 - _FEWER_PARTS_MAX), -1):
            if not off:
                break
            fewer = self._shares(pieces, score, count, target, least)
            if fewer[2] < off:
                kept, lengths, off = fewer
        chosen: list[_Piece] = []
        owed = 0
        for i, (piece, length) in enumerate(zip(kept, lengths, strict=True)):
            if not length:
                continue
            last = i == len(kept) - 1
            part = self._part(piece, length, owed, least, last=last)
            owed += length - part.frames
            chosen.append(part)
        return chosen

    def _shares(
        self, pieces: list[_Piece], score: list[float], count: int, target: int, least: int
    ) -> tuple[list[_Piece], list[int], int]:
        """The best `count` pieces, the frames to take of each, and how many joins miss a beat."""
        best = sorted(sorted(range(len(pieces)), key=lambda i: (-score[i], i))[:count])
        while sum(pieces[i].frames for i in best) < target:  # few long pieces beat many
            rest = [i for i in range(len(pieces)) if i not in best]
            best = sorted([*best, min(rest, key=lambda i: (-score[i], i))])
        limits = np.array([pieces[i].frames for i in best])
        shortest = np.minimum(limits, least)
        weights = np.array([0.5 + score[i] for i in best])
        lengths = _lengths(weights, limits, shortest, target)
        if not len(self._film_beats):
            return [pieces[i] for i in best], lengths, 0
        lengths = _on_beats(lengths, limits, shortest, self._film_beats)
        off = int((~np.isin(np.cumsum(lengths)[:-1], self._film_beats)).sum())
        return [pieces[i] for i in best], lengths, off

    def _whole_beats(self, least: int) -> int:
        """The shortest length of a range that is some beats long."""
        beats = self._film_beats if len(self._film_beats) else self._source_beats
        if len(beats) <= 1:
            return least
        period = max(1.0, float(beats[-1] - beats[0]) / (len(beats) - 1))
        return max(least, int(np.ceil(np.ceil(least / period) * period)))

    def _worth(self, start: int, end: int) -> float:
        return float(self._sums[end] - self._sums[start])

    def _part(self, piece: _Piece, length: int, owed: int, least: int, *, last: bool) -> _Piece:
        """The best part of a piece of about this length; on beats of the source if there are."""
        at = self._source_beats
        beats = at[(at >= piece.start) & (at <= piece.end)]
        wished = min(max(length + owed, min(length, least)), piece.frames)
        options: list[tuple[int, int]] = []
        for start in beats[:-1]:
            end = int(min(start + wished, piece.end))
            if not last:
                end = int(beats[int(np.argmin(np.abs(beats - (start + wished))))])
            if end - start >= min(least, wished) and abs(end - start - wished) <= wished / 2:
                options.append((int(start), end))
        if not options:
            options = [(s, s + wished) for s in range(piece.start, piece.end - wished + 1)]
        starts, ends = np.array(options).T
        values = (self._sums[ends] - self._sums[starts]) / (ends - starts)
        values -= np.abs(ends - starts - wished) / wished / 2
        values -= _WORD_COST * (self._in_word[starts] + self._in_word[ends])
        place = int(np.argmax(values))
        return msgspec.structs.replace(piece, start=int(starts[place]), end=int(ends[place]))


def _in_words(
    speech: tuple[Span, ...], rate: Fraction, total: int, margin_seconds: float
) -> NDArray[np.float64]:
    """1 for each border between frames that would cut into speech, else 0."""
    words = np.zeros(total + 1)
    for span in speech:
        first = int(np.ceil((span.start - margin_seconds) * float(rate)))
        last = int(np.floor((span.end + margin_seconds) * float(rate)))
        words[max(0, first + 1) : max(0, last)] = 1.0
    return words


def _shortened_to_beats(limits: Frames, least: int, beats: Frames) -> list[int]:
    """All that there is, each but the last shortened to end on a beat of the film."""
    lengths: list[int] = []
    before = 0
    for limit in map(int, limits[:-1]):
        within = beats[(beats >= before + min(limit, least)) & (beats <= before + limit)]
        lengths.append(int(within[-1]) - before if len(within) else limit)
        before += lengths[-1]
    return [*lengths, int(limits[-1])]


def _on_beats(lengths: list[int], limits: Frames, least: Frames, beats: Frames) -> list[int]:
    """The lengths changed as little as possible so that they end on beats of the film; same sum.

    The best row of joins by dynamic programming; where no beat can be reached, one stays put.
    """
    target = sum(lengths)
    off_beat = float(target) * len(lengths)
    places: list[Frames] = [np.zeros(1, dtype=np.int64)]
    costs = np.zeros(1)
    came_from: list[NDArray[np.intp]] = []
    planned = 0
    for i, length in enumerate(lengths[:-1]):
        planned += length
        low = target - int(limits[i + 1 :].sum())
        high = target - int(least[i + 1 :].sum())
        here = np.union1d(beats[(beats >= low) & (beats <= high)], [planned])
        first = np.searchsorted(places[-1], here - limits[i], side="left")
        last = np.searchsorted(places[-1], here - least[i], side="right")
        here, first, last = (row[last > first] for row in (here, first, last))
        best = np.array(
            [a + int(np.argmin(costs[a:b])) for a, b in zip(first, last, strict=True)],
            dtype=np.intp,
        )
        costs = costs[best] + np.abs(here - planned) + off_beat * ~np.isin(here, beats)
        places.append(here)
        came_from.append(best)
    joins = [target]
    at = int(np.argmin(costs))
    for here, best in zip(places[:0:-1], came_from[::-1], strict=True):
        joins.append(int(here[at]))
        at = int(best[at])
    return [int(step) for step in np.diff([0, *joins[::-1]])]


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


def _without_jumps(chosen: list[_Piece], jump_frames_max: int) -> list[_Piece]:
    """Parts of one stretch with little between them moved together."""
    moved: list[_Piece] = []
    for piece in chosen:
        before = moved[-1] if moved else None
        gap = piece.start - before.end if before and before.live == piece.live else 0
        if 0 < gap < jump_frames_max:
            piece = msgspec.structs.replace(  # noqa: PLW2901 - the same, earlier
                piece, start=piece.start - gap, end=piece.end - gap
            )
        moved.append(piece)
    return moved


def _joined(pieces: list[_Piece]) -> tuple[KeptRange, ...]:
    """Ranges that touch within a shot are one."""
    joined: list[KeptRange] = []
    for piece in pieces:
        start = piece.start
        if joined and joined[-1].end_frame == start and joined[-1].shot == piece.shot:
            start = joined.pop().start_frame
        joined.append(KeptRange(start_frame=start, end_frame=piece.end, shot=piece.shot))
    return tuple(joined)


def _interest(analysis: Analysis, rate: Fraction, total: int, signs: Signs) -> Floats:
    """How much a frame of the film's rate is worth watching, 0 to 1."""
    shown = _shown(analysis, rate, total)
    motion = _scaled(analysis.change)[shown]
    sharp = _scaled(analysis.sharpness)[shown]
    face = _faces(signs.looks, rate, total) * np.sqrt(sharp)  # none is seen in a blur
    if not len(analysis.power):
        silent: Floats = (0.5 * motion + 0.3 * sharp + 0.2 * face).astype(np.float32)
        return silent
    windows = (np.arange(total) / (float(rate) * WINDOW_SECONDS)).astype(np.int64)
    loud = _scaled(np.sqrt(analysis.power))[np.minimum(windows, len(analysis.power) - 1)]
    for span in signs.speech:  # a voice counts as much as the loudest sound
        loud[max(0, int(span.start * rate)) : int(np.ceil(span.end * rate))] = 1.0
    interest: Floats = (0.4 * loud + 0.3 * motion + 0.15 * sharp + 0.15 * face).astype(np.float32)
    return interest


def _faces(looks: tuple[Look, ...], rate: Fraction, total: int) -> Floats:
    """How much of a face is seen in each frame, 0 to 1."""
    if not looks:
        return np.zeros(total, dtype=np.float32)
    middles = (np.arange(total) + 0.5) / float(rate)
    heights = [max((f.height for f in look.faces), default=0.0) for look in looks]
    seen = [0.5 + 0.5 * min(1.0, height / _FACE_HEIGHT_FULL) if height else 0 for height in heights]
    at = np.array([look.at for look in looks])
    after = np.clip(np.searchsorted(at, middles), 1, max(1, len(at) - 1))
    nearest = np.where(
        middles - at[after - 1] <= at[after % len(at)] - middles, after - 1, after % len(at)
    )
    near = np.abs(at[nearest] - middles) < _LOOK_REACHES_SECONDS
    worth: Floats = (np.array(seen)[nearest] * near).astype(np.float32)
    return worth


def _shown(analysis: Analysis, rate: Fraction, total: int) -> NDArray[np.intp]:
    """Index of the decoded frame that each frame of the film's rate shows."""
    middles = (np.arange(total) + 0.5) / float(rate)
    return np.maximum(0, np.searchsorted(analysis.instants, middles, side="right") - 1)


def _scaled(values: Floats) -> Floats:
    top = float(np.percentile(values, 90))
    scaled: Floats = np.clip(values / (top or 1.0), 0.0, 1.0).astype(np.float32)
    return scaled


def _poster(
    analysis: Analysis, ranges: tuple[KeptRange, ...], rate: Fraction, looks: tuple[Look, ...]
) -> int:
    """The sharpest, most colourful, well lit frame that does not stand at the edge of its range."""
    if not ranges:
        return 0
    shown = _shown(analysis, rate, ranges[-1].end_frame)
    light = 1 - np.abs(analysis.luma / 127.5 - 1)
    steady = 1 - _scaled(analysis.change)
    sharp = _scaled(analysis.sharpness)
    faces = _faces(looks, rate, ranges[-1].end_frame) * np.sqrt(
        sharp[shown]
    )  # none is seen in a blur
    worth = (
        1.5 * sharp + _scaled(analysis.colour) + _scaled(analysis.contrast) + light + 0.5 * steady
    )[shown] + _FACE_ON_POSTER * faces
    best, best_worth, before = 0, -1.0, 0
    for kept in ranges:
        inset = min(3, (kept.frames - 1) // 2)
        part = worth[kept.start_frame + inset : kept.end_frame - inset]
        place = int(np.argmax(part))
        if part[place] > best_worth:
            best, best_worth = before + inset + place, float(part[place])
        before += kept.frames
    return best
