"""The beats of a sound: onsets, one tempo that they fit best, and the row of beats along them.

Onsets are rises of energy in bands of the spectrum. The tempo is the period at which the onsets
repeat, with a liking for the middle of what music uses; the row of beats is found by dynamic
programming: each beat wants an onset and the usual distance to the beat before.
Plain numpy: a well-known library of this kind compiles for half a minute before its first answer.
"""

import msgspec
import numpy as np
from numpy.typing import NDArray

from gpu_runners.pipelines.hearing import RATE, Samples

HOP_SAMPLES = 160
"""Onsets are told every 10 ms."""

_WINDOW_SAMPLES = 512
_BANDS = 32
_LOWEST_HZ = 40.0
_BPM_MIN, _BPM_MAX, _BPM_LIKED = 60.0, 200.0, 115.0
_OCTAVES_LIKED = 0.9
"""Spread of the liking for tempi."""
_STRICTNESS = 100.0
"""How much a beat dislikes to come early or late."""
_LATE_HOPS = 0.7
"""An onset is felt this much before the sound that it is of has fully come."""
RHYTHM_MIN = 0.2
"""Of `Beats.rhythm`: below it a sound has no beat that one could cut to."""
_ONSETS_MIN = 1e-6

Row = NDArray[np.float64]


class Beats(msgspec.Struct, frozen=True, kw_only=True):
    instants: tuple[float, ...]
    """Seconds from the start of the sound, rising; none if it has no rhythm."""
    bpm: float
    rhythm: float
    """0 to 1: how much of the onsets repeats with the tempo."""


class Onsets:
    """Hears blocks of samples; afterwards gives how much begins at each hop."""

    def __init__(self) -> None:
        self._waiting = np.zeros(_WINDOW_SAMPLES // 2, dtype=np.float32)
        self._window = np.hanning(_WINDOW_SAMPLES).astype(np.float32)
        self._bands = _band_matrix()
        self._before: NDArray[np.float32] | None = None
        self._rises: list[NDArray[np.float32]] = []

    def hear(self, block: Samples) -> None:
        row = np.concatenate([self._waiting, block])
        count = (len(row) - _WINDOW_SAMPLES) // HOP_SAMPLES + 1
        if count <= 0:
            self._waiting = row
            return
        frames = np.lib.stride_tricks.sliding_window_view(row, _WINDOW_SAMPLES)[::HOP_SAMPLES]
        spectrum = np.abs(np.fft.rfft(frames[:count] * self._window, axis=1)).astype(np.float32)
        bands = np.log1p(100.0 * (spectrum @ self._bands)).astype(np.float32)
        first = bands[:1] if self._before is None else self._before[None]
        steps = np.diff(np.concatenate([first, bands]), axis=0)
        self._rises.append(np.maximum(steps, 0).mean(axis=1))
        self._before = bands[-1]
        self._waiting = row[count * HOP_SAMPLES :]

    def row(self) -> Row:
        return np.concatenate(self._rises).astype(np.float64) if self._rises else np.zeros(0)


def find_beats(onsets: Row, rhythm_min: float = RHYTHM_MIN) -> Beats:
    """The beats of a row of onsets, one value every HOP_SAMPLES; none below that rhythm."""
    if len(onsets) < 3 * RATE // HOP_SAMPLES or onsets.max() < _ONSETS_MIN:
        return Beats(instants=(), bpm=0.0, rhythm=0.0)
    local = _smooth(onsets, 100)
    clear = np.maximum(0.0, onsets - local)
    clear = _smooth(clear / (clear.std() or 1.0), 3)
    period, rhythm = _tempo(clear)
    bpm = 60 * RATE / HOP_SAMPLES / period
    if rhythm < rhythm_min:
        return Beats(instants=(), bpm=round(bpm, 2), rhythm=round(rhythm, 3))
    places = _row_of_beats(clear, period)
    instants = (_exact(clear, places) + _LATE_HOPS) * HOP_SAMPLES / RATE
    usual = float(np.median(np.diff(instants))) if len(instants) > 1 else 60 / bpm
    return Beats(
        instants=tuple(round(float(at), 4) for at in np.maximum(0.0, instants)),
        bpm=round(60 / usual, 2),
        rhythm=round(rhythm, 3),
    )


def _tempo(clear: Row) -> tuple[float, float]:
    """The period in hops that the onsets repeat with, and how much of them does."""
    hops = RATE / HOP_SAMPLES
    low, high = int(60 * hops / _BPM_MAX), int(60 * hops / _BPM_MIN)
    centred = clear - clear.mean()
    size = 1 << (2 * len(centred) - 1).bit_length()
    transform = np.fft.rfft(centred, size)
    alike = np.fft.irfft(transform * np.conj(transform), size)[: 4 * high]
    alike = alike[: len(centred)] / (alike[0] or 1.0)
    alike *= len(centred) / np.maximum(1, len(centred) - np.arange(len(alike)))
    periods = np.arange(low, min(high, len(alike) - 2) + 1)
    liking = np.exp(-0.5 * (np.log2(60 * hops / periods / _BPM_LIKED) / _OCTAVES_LIKED) ** 2)
    doubled = np.array([alike[2 * p] if 2 * p < len(alike) else 0.0 for p in periods])
    worth = liking * (alike[periods] + 0.5 * doubled)
    best = int(periods[int(np.argmax(worth))])
    before, at, after = alike[best - 1], alike[best], alike[best + 1]
    bend = before - 2 * at + after
    shift = 0.5 * (before - after) / bend if bend < 0 else 0.0
    return best + float(np.clip(shift, -0.5, 0.5)), float(np.clip(at, 0.0, 1.0))


def _row_of_beats(clear: Row, period: float) -> list[int]:
    """Hops of the beats: the best row in which each follows its predecessor about in time."""
    reach = np.arange(-round(2 * period), -round(period / 2) + 1)
    cost = -_STRICTNESS * np.log(-reach / period) ** 2
    best = clear.copy()
    came_from = np.full(len(clear), -1)
    first = -int(reach[0])
    for place in range(len(clear)):
        if place < first:
            options = reach[first - place :]
            if not len(options):
                continue
            scores = best[place + options] + cost[first - place :]
        else:
            options = reach
            scores = best[place + reach[0] : place + reach[-1] + 1] + cost
        chosen = int(np.argmax(scores))
        if scores[chosen] > 0:
            best[place] = clear[place] + scores[chosen]
            came_from[place] = place + int(options[chosen])
    tail = max(1, round(period))
    place = len(best) - tail + int(np.argmax(best[-tail:]))
    places: list[int] = []
    while place >= 0:
        places.append(place)
        place = int(came_from[place])
    places.reverse()
    return _without_silent_ends(clear, places)


def _without_silent_ends(clear: Row, places: list[int]) -> list[int]:
    """Less the beats before the music begins and after it has ended."""
    strength = np.array([clear[max(0, p - 2) : p + 3].max() for p in places])
    audible = np.flatnonzero(strength > 0.1 * np.median(strength))
    return places[int(audible[0]) : int(audible[-1]) + 1] if len(audible) else []


def _exact(clear: Row, places: list[int]) -> Row:
    """Beats moved onto the onset next to them, within 20 ms, between the hops."""
    exact = np.array(places, dtype=np.float64)
    for index, place in enumerate(places):
        low, high = max(1, place - 2), min(len(clear) - 1, place + 3)
        if high <= low:
            continue
        top = low + int(np.argmax(clear[low:high]))
        before, at, after = clear[top - 1], clear[top], clear[top + 1] if top + 1 < high else 0.0
        bend = before - 2 * at + after
        exact[index] = top + (0.5 * (before - after) / bend if bend < 0 else 0.0)
    return exact


def _smooth(row: Row, hops: int) -> Row:
    kernel = np.hanning(hops + 2)
    smooth: Row = np.convolve(row, kernel / kernel.sum(), mode="same").astype(np.float64)
    return smooth


def _band_matrix() -> NDArray[np.float32]:
    """From a spectrum to the mean of bands that grow with their pitch."""
    lines = np.arange(_WINDOW_SAMPLES // 2 + 1) * RATE / _WINDOW_SAMPLES
    borders = np.geomspace(_LOWEST_HZ, RATE / 2, _BANDS + 2)
    matrix = np.zeros((len(lines), _BANDS), dtype=np.float32)
    for band in range(_BANDS):
        low, top, high = borders[band : band + 3]
        rise, fall = (lines - low) / (top - low), (high - lines) / (high - top)
        weights = np.clip(np.minimum(rise, fall), 0, None)
        if not weights.any():
            weights[int(np.argmin(np.abs(lines - top)))] = 1.0
        matrix[:, band] = weights / weights.sum()
    return matrix
