"""Dead air: where nothing is heard or seen, and, in a source without sound, where nothing moves."""

import msgspec
import numpy as np
from numpy.typing import NDArray

from gpu_runners.pipelines.analysis import WINDOW_SECONDS, Analysis

_STILL_CHANGE_MAX = 0.35
"""Mean difference, of 255, below which a picture stands still; the noise of a codec is less."""

_BLACK_LUMA_MAX = 16.0
_BLACK_CONTRAST_MAX = 2.5
BLACK_SECONDS_MIN = 0.2
_BLANK_SPREAD_MAX = 24.0
"""From the darkest to the brightest point of a blank picture, of 255: noise, a soft vignette."""
BLANK_SECONDS_MIN = 0.5
"""Shorter ones are how a film breathes between two pictures."""
_CLICK_WINDOWS_MAX = 2
"""A click of this length within a silence does not end it."""


class Span(msgspec.Struct, frozen=True, kw_only=True):
    """A half-open range of time, in seconds from the start of the source."""

    start: float
    end: float

    @property
    def seconds(self) -> float:
        return self.end - self.start


def has_sound(analysis: Analysis, silence_db: float) -> bool:
    """Whether anything louder than the silence is ever heard."""
    return bool(len(analysis.peak)) and float(analysis.peak.max()) > _amplitude(silence_db)


def find_silences(analysis: Analysis, *, silence_db: float, seconds_min: float) -> tuple[Span, ...]:
    """Spans of at least `seconds_min` whose loudest sample stays under `silence_db` (dBFS).

    Where the sound has ended and the picture goes on, it is silent.
    """
    windows = int(np.ceil(analysis.seconds / WINDOW_SECONDS))
    heard = np.zeros(windows, dtype=bool)
    known = min(windows, len(analysis.peak))
    heard[:known] = analysis.peak[:known] > _amplitude(silence_db)
    for start, end in runs(heard):
        inside = start > 0 and end < windows
        if inside and end - start <= _CLICK_WINDOWS_MAX:
            heard[start:end] = False
    return tuple(
        Span(start=start * WINDOW_SECONDS, end=min(end * WINDOW_SECONDS, analysis.seconds))
        for start, end in runs(~heard)
        if (end - start) * WINDOW_SECONDS >= seconds_min
    )


def find_still(analysis: Analysis, *, seconds_min: float) -> tuple[Span, ...]:
    """Spans of at least `seconds_min` in which no frame differs visibly from the one before."""
    still = analysis.change < _STILL_CHANGE_MAX
    still[0] = len(still) > 1 and bool(still[1])
    return _frame_spans(analysis, still, seconds_min)


def find_black(analysis: Analysis) -> tuple[Span, ...]:
    """Spans of empty, dark pictures (fades between scenes, leaders)."""
    black = (analysis.luma < _BLACK_LUMA_MAX) & (analysis.contrast < _BLACK_CONTRAST_MAX)
    return _frame_spans(analysis, black, BLACK_SECONDS_MIN)


def find_blank(analysis: Analysis) -> tuple[Span, ...]:
    """Spans of pictures of one colour, or nearly: before, between and after title cards."""
    return _frame_spans(analysis, analysis.spread < _BLANK_SPREAD_MAX, BLANK_SECONDS_MIN)


def without(
    spans: tuple[Span, ...], kept: tuple[Span, ...], *, margin: float, seconds_min: float
) -> tuple[Span, ...]:
    """What is left of the spans away from those that are kept, if it is long enough."""
    left: list[Span] = []
    for span in spans:
        start = span.start
        for stays in sorted(kept, key=lambda stays: stays.start):
            if stays.end + margin <= start or stays.start - margin >= span.end:
                continue
            left.append(Span(start=start, end=stays.start - margin))
            start = max(start, stays.end + margin)
        left.append(Span(start=start, end=span.end))
    return tuple(span for span in left if span.seconds >= seconds_min)


def _frame_spans(
    analysis: Analysis, marked: NDArray[np.bool_], seconds_min: float
) -> tuple[Span, ...]:
    ends = np.append(analysis.instants[1:], analysis.seconds)
    spans = (
        Span(start=float(analysis.instants[start]), end=float(ends[end - 1]))
        for start, end in runs(marked)
    )
    return tuple(span for span in spans if span.seconds >= seconds_min)


def runs(marked: NDArray[np.bool_]) -> list[tuple[int, int]]:
    """Half-open index ranges in which every element is true."""
    edges = np.flatnonzero(np.diff(marked.astype(np.int8), prepend=0, append=0))
    return [(int(a), int(b)) for a, b in zip(edges[::2], edges[1::2], strict=True)]


def _amplitude(decibels: float) -> float:
    return float(10 ** (decibels / 20))
