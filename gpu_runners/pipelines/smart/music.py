"""Music of our own making: a template's style, tempo and key become sound, on the beat exactly.

Additive synthesis in numpy, a few instruments, a progression of chords for each style, an
arrangement that grows and comes home. Noise is seeded, so the same request gives the same samples.
"""

from collections.abc import Callable

import msgspec
import numpy as np
from numpy.typing import NDArray

from schema.scenes.smart import MusicStyle

RATE = 48_000

Sound = NDArray[np.float64]
"""One row of samples; stereo where it is 2 x n."""

_SEED = 20_11
_TAIL_SECONDS = 0.35
_BAR_BEATS = 4
_Chord = tuple[int, ...]
"""Semitones over the key."""

_MAJOR_LIFT: tuple[_Chord, ...] = ((0, 4, 7, 11), (7, 11, 14), (9, 12, 16), (5, 9, 12, 16))
_FOLK: tuple[_Chord, ...] = ((0, 4, 7), (5, 9, 12), (9, 12, 16), (7, 11, 14))
_NIGHT: tuple[_Chord, ...] = ((9, 12, 16, 19), (5, 9, 12, 16), (0, 4, 7, 11), (7, 11, 14, 17))
_AIR: tuple[_Chord, ...] = ((0, 7, 11, 16), (9, 12, 16, 19), (5, 9, 12, 16), (5, 7, 12, 14))
_EPIC: tuple[_Chord, ...] = ((9, 12, 16), (5, 9, 12), (0, 4, 7), (7, 11, 14))


class _Style(msgspec.Struct, frozen=True, kw_only=True):
    chords: tuple[_Chord, ...]
    pad: float
    pluck: float
    bass: float
    kick: tuple[float, ...]
    """Beats of a bar of four."""
    snare: tuple[float, ...]
    hat: float
    """Length of a hat's step in beats; 0: none."""
    steps: tuple[int, ...]
    """Which notes of the chord the plucks go through, in eighths; -1 rests."""
    pump: float
    """How far a kick pushes the rest down."""
    room: float
    bright: float
    shaker: bool = False


_STYLES: dict[MusicStyle, _Style] = {
    MusicStyle.WARM: _Style(
        chords=_FOLK, pad=0.22, pluck=0.62, bass=0.42, kick=(0.0, 2.5), snare=(), hat=0.0,
        steps=(0, 2, 1, 3, 2, 4, 1, 2), pump=0.0, room=0.26, bright=0.75, shaker=True,
    ),
    MusicStyle.DRIVE: _Style(
        chords=_NIGHT, pad=0.3, pluck=0.4, bass=0.6, kick=(0.0, 1.0, 2.0, 3.0), snare=(1.0, 3.0),
        hat=0.5, steps=(0, 2, 4, 2, 3, 1, 4, 2), pump=0.55, room=0.16, bright=1.0,
    ),
    MusicStyle.POP: _Style(
        chords=_MAJOR_LIFT, pad=0.22, pluck=0.55, bass=0.5, kick=(0.0, 1.5, 2.0), snare=(1.0, 3.0),
        hat=0.5, steps=(0, -1, 2, 1, -1, 3, 2, -1), pump=0.25, room=0.16, bright=1.0,
    ),
    MusicStyle.CALM: _Style(
        chords=_AIR, pad=0.5, pluck=0.42, bass=0.3, kick=(), snare=(), hat=0.0,
        steps=(0, -1, 2, -1, 4, -1, 3, -1), pump=0.0, room=0.42, bright=0.5,
    ),
    MusicStyle.CINEMA: _Style(
        chords=_EPIC, pad=0.55, pluck=0.3, bass=0.55, kick=(0.0, 3.0, 3.5), snare=(), hat=0.0,
        steps=(0, 2, 0, 3, 0, 2, 0, 4), pump=0.1, room=0.4, bright=0.6,
    ),
}  # fmt: skip


def compose(style: MusicStyle, *, bpm: float, root: int, seconds: float) -> Sound:
    """Music of a length, 2 x n, its first beat at 0. It ends on the first chord, and rings out."""
    count = round(seconds * RATE)
    if style is MusicStyle.NONE or count <= 0:
        return np.zeros((2, max(count, 0)))
    score = _Score(_STYLES[style], bpm, root, count)
    score.play()
    return score.mixed()


class _Score:
    """One piece while it is written: a track for each family of instruments."""

    def __init__(self, style: _Style, bpm: float, root: int, count: int) -> None:
        self._style = style
        self._beat = 60 / bpm
        self._root = 48 + (root if root < 7 else root - 12)  # noqa: PLR2004 - the nearer octave
        self._count = count
        self._soft = np.zeros((2, count))
        self._drums = np.zeros((2, count))
        self._pushed = np.ones(count)
        self._drawn: dict[tuple[str, int, int], Sound] = {}
        self._noise = np.random.default_rng(_SEED)
        self._bars = max(1, int(np.ceil(count / RATE / (4 * self._beat))))

    def play(self) -> None:
        beats = self._count / RATE / self._beat
        for bar in range(self._bars):
            last = bar == self._bars - 1 or beats - 4 * bar <= _BAR_BEATS
            chord = self._style.chords[0 if last and bar else bar % len(self._style.chords)]
            grown = min(1.0, 0.55 + 0.15 * bar)
            self._chord(bar, chord, grown)
            self._plucks(bar, chord, grown, last=last)
            self._bass_line(bar, chord, last=last)
            if not (last and self._bars > 2):  # noqa: PLR2004 - a very short piece keeps its drums
                self._beat_of(bar)

    def mixed(self) -> Sound:
        wet = _in_a_room(self._soft, self._style.room, self._noise)
        whole = wet * self._pushed + self._drums
        tail = min(self._count, round(_TAIL_SECONDS * RATE))
        whole[:, self._count - tail :] *= np.linspace(1, 0, tail) ** 1.5
        peak = float(np.abs(whole).max()) or 1.0
        return np.tanh(whole / peak * 1.25) * 0.8

    def _chord(self, bar: int, chord: _Chord, grown: float) -> None:
        length = round(4 * self._beat * RATE * 1.06)
        for i, note in enumerate(chord):
            place = (i - (len(chord) - 1) / 2) / max(1, len(chord))
            sound = self._sound("pad", note, length)
            self._add(self._soft, bar * 4.0, sound, self._style.pad * grown * 0.34, place)

    def _plucks(self, bar: int, chord: _Chord, grown: float, *, last: bool) -> None:
        ladder = (*chord, chord[0] + 12, chord[1] + 12, chord[2] + 12)
        for eighth, step in enumerate(self._style.steps):
            if step < 0 or (last and eighth):
                continue
            accent = 1.0 if eighth % 4 == 0 else 0.72 if eighth % 2 == 0 else 0.6
            sound = self._sound("pluck", ladder[step % len(ladder)] + 12, RATE * 2)
            place = 0.45 * (-1) ** eighth * (0.4 + 0.6 * (eighth % 3) / 2)
            gain = self._style.pluck * accent * grown * 0.5
            self._add(self._soft, bar * 4 + eighth * 0.5, sound, gain, place)

    def _bass_line(self, bar: int, chord: _Chord, *, last: bool) -> None:
        deep = chord[0] - 12 if chord[0] < 7 else chord[0] - 24  # noqa: PLR2004 - one register
        places = (0.0,) if last or not self._style.kick else (0.0, 1.5, 2.0, 3.5)
        if self._style.pump > 0.4 and not last:  # noqa: PLR2004 - between the kicks
            places = (0.5, 1.5, 2.5, 3.5)
        for place in places:
            length = round((3.6 if len(places) == 1 else 0.9) * self._beat * RATE)
            sound = self._sound("bass", deep, length)
            self._add(self._soft, bar * 4 + place, sound, self._style.bass * 0.42)

    def _beat_of(self, bar: int) -> None:
        light = bar == 0 and self._bars > 3  # noqa: PLR2004 - the drums come in later
        for place in self._style.kick:
            if not light or place == 0:
                self._add(self._drums, bar * 4 + place, self._sound("kick", 0, RATE // 2), 0.46)
                self._push(bar * 4 + place)
        for place in self._style.snare if not light else ():
            self._add(self._drums, bar * 4 + place, self._sound("snare", 0, RATE // 3), 0.36)
        step = self._style.hat or (0.5 if self._style.shaker else 0.0)
        for i in range(round(4 / step) if step else 0):
            accent = 0.1 if (i * step) % 1 else 0.055
            name = "shaker" if self._style.shaker else "hat"
            place = 0.3 if i % 2 else -0.2
            sound = self._sound(name, 0, RATE // 8)
            self._add(self._drums, bar * 4 + i * step, sound, accent, place)

    def _push(self, beat: float) -> None:
        start = round(beat * self._beat * RATE)
        length = min(round(self._beat * RATE), self._count - start)
        if length > 0 and self._style.pump:
            back = np.minimum(1.0, np.arange(length) / (0.7 * self._beat * RATE))
            shape = 1 - self._style.pump * (1 - back) ** 2
            self._pushed[start : start + length] = np.minimum(
                self._pushed[start : start + length], shape
            )

    def _sound(self, name: str, note: int, length: int) -> Sound:
        key = (name, note, length)
        if key not in self._drawn:
            hertz = 440 * 2 ** ((self._root + note - 69) / 12)
            self._drawn[key] = _INSTRUMENTS[name](hertz, length, self._style.bright, self._noise)
        return self._drawn[key]

    def _add(
        self, track: Sound, beat: float, sound: Sound, gain: float, place: float = 0.0
    ) -> None:
        """Put a sound on a track; `place` is -1 left to 1 right."""
        start = round(beat * self._beat * RATE)
        length = min(len(sound), self._count - start)
        if length <= 0:
            return
        angle = (place + 1) * np.pi / 4
        track[0, start : start + length] += sound[:length] * gain * np.cos(angle) * 1.41
        track[1, start : start + length] += sound[:length] * gain * np.sin(angle) * 1.41


def _times(length: int) -> Sound:
    return np.arange(length) / RATE


def _harmonics(
    hertz: float, length: int, weights: list[float], detune: float, decay: list[float] | None = None
) -> Sound:
    t = _times(length)
    sound = np.zeros(length)
    for i, weight in enumerate(weights):
        pitch = hertz * (i + 1) * (1 + detune)
        if pitch < RATE / 2.5:
            tone = np.sin(2 * np.pi * pitch * t + i * 0.7)
            sound += weight * (tone * np.exp(-t * decay[i]) if decay else tone)
    return sound


def _pad(hertz: float, length: int, bright: float, _: np.random.Generator) -> Sound:
    weights = [1 / n ** (2.1 - 0.6 * bright) for n in range(1, 9)]
    sound = sum(_harmonics(hertz, length, weights, by) for by in (-0.0021, 0.0, 0.0024))
    rise, fall = min(length // 3, round(0.32 * RATE)), min(length // 3, round(0.4 * RATE))
    shape = np.ones(length)
    shape[:rise] = np.sin(np.linspace(0, np.pi / 2, rise)) ** 2
    shape[length - fall :] = np.cos(np.linspace(0, np.pi / 2, fall)) ** 2
    breath = 1 + 0.08 * np.sin(2 * np.pi * 0.8 * _times(length))
    return np.asarray(sound) * shape * breath / 3


def _pluck(hertz: float, length: int, bright: float, noise: np.random.Generator) -> Sound:
    weights = [(0.5 + 0.5 * bright) ** n / (n + 1) ** 1.1 for n in range(10)]
    decay = [2.6 + 1.9 * n + hertz / 420 for n in range(10)]
    sound = _harmonics(hertz, length, weights, 0.0, decay)
    attack = round(0.006 * RATE)
    sound[:attack] *= np.linspace(0, 1, attack)
    pick = noise.standard_normal(attack * 2) * np.linspace(1, 0, attack * 2) ** 2
    sound[: attack * 2] += 0.06 * bright * pick
    return sound


def _bass(hertz: float, length: int, bright: float, _: np.random.Generator) -> Sound:
    sound = np.tanh(1.5 * _harmonics(hertz, length, [1.0, 0.35 * bright, 0.14 * bright], 0.0))
    t = _times(length)
    shape = np.minimum(1, t / 0.012) * np.exp(-t * 1.6)
    fall = min(length, round(0.05 * RATE))
    shape[length - fall :] *= np.linspace(1, 0, fall)
    return np.asarray(sound * shape)


def _kick(_: float, length: int, bright: float, noise: np.random.Generator) -> Sound:
    t = _times(length)
    pitch = 47 + 120 * np.exp(-t * 38)
    body = np.sin(2 * np.pi * np.cumsum(pitch) / RATE) * np.exp(-t * 7.5)
    click = noise.standard_normal(length) * np.exp(-t * 420) * 0.12 * bright
    return np.asarray(np.tanh(1.6 * (body + click)))


def _snare(_: float, length: int, __: float, noise: np.random.Generator) -> Sound:
    t = _times(length)
    rattle = _between(noise.standard_normal(length), 900, 9_000) * np.exp(-t * 19)
    body = np.sin(2 * np.pi * 190 * t) * np.exp(-t * 30)
    return 1.3 * rattle + 0.5 * body


def _hat(_: float, length: int, __: float, noise: np.random.Generator) -> Sound:
    hiss = _between(noise.standard_normal(length), 7_000, 15_000)
    return np.asarray(hiss * np.exp(-_times(length) * 62) * 2)


def _shaker(_: float, length: int, __: float, noise: np.random.Generator) -> Sound:
    t = _times(length)
    shape = np.minimum(1, t / 0.018) * np.exp(-t * 34)
    return np.asarray(_between(noise.standard_normal(length), 4_500, 11_000) * shape * 1.6)


def _between(sound: Sound, low: float, high: float) -> Sound:
    spectrum = np.fft.rfft(sound)
    pitch = np.fft.rfftfreq(len(sound), 1 / RATE)
    shape = 1 / (1 + (low / np.maximum(pitch, 1)) ** 6) / (1 + (pitch / high) ** 6)
    return np.asarray(np.fft.irfft(spectrum * shape, len(sound)))


def _in_a_room(sound: Sound, wet: float, noise: np.random.Generator) -> Sound:
    """Reverberation: convolved with noise that dies away, another for each ear."""
    length = round(1.9 * RATE)
    t = _times(length)
    size = 1 << (sound.shape[1] + length - 1).bit_length()
    mixed = np.empty_like(sound)
    for ear in range(2):
        reply = _between(noise.standard_normal(length), 180, 5_200) * np.exp(-t * 3.4)
        reply[: round(0.012 * RATE)] = 0
        reply /= np.sqrt((reply**2).sum())
        both = np.fft.irfft(np.fft.rfft(sound[ear], size) * np.fft.rfft(reply, size), size)
        mixed[ear] = sound[ear] * (1 - wet * 0.5) + wet * both[: sound.shape[1]]
    return mixed


_INSTRUMENTS: dict[str, Callable[[float, int, float, np.random.Generator], Sound]] = {
    "pad": _pad,
    "pluck": _pluck,
    "bass": _bass,
    "kick": _kick,
    "snare": _snare,
    "hat": _hat,
    "shaker": _shaker,
}
