"""All that is known of a source before it is cut: shots, dead air, speech, faces, beats."""

from collections.abc import Callable
from pathlib import Path

import msgspec
import numpy as np
from av.video.frame import VideoFrame

from gpu_runners.pipelines.analysis import WINDOW_SECONDS, Analysis, Watch, analyse
from gpu_runners.pipelines.autocut.lettering import CardFinder, CardLook
from gpu_runners.pipelines.beats import RHYTHM_MIN, Beats, Onsets, find_beats
from gpu_runners.pipelines.faces import FaceFinder, Look, face_model
from gpu_runners.pipelines.hearing import RATE, listen
from gpu_runners.pipelines.pipeline import InputError, InputReason
from gpu_runners.pipelines.probe import SourceHeader, opened
from gpu_runners.pipelines.probe_limits import ProbeLimits
from gpu_runners.pipelines.render import Music
from gpu_runners.pipelines.shots import find_cuts
from gpu_runners.pipelines.silence import (
    BLACK_SECONDS_MIN,
    BLANK_SECONDS_MIN,
    Span,
    find_black,
    find_blank,
    find_silences,
    find_still,
    has_sound,
    without,
)
from gpu_runners.pipelines.speech import MODEL_FILE, Voice, speech_by_level
from schema.scenes.autocut import AutocutParameters

_SPEECH_SHARE_MIN = 0.2
"""Of the time, from which on a clip is somebody speaking, and pauses of the voice are dead air."""
_PAUSE_DB = -14.0
"""A pause is at least this much quieter than the voice."""
_PAUSE_SECONDS_MIN = 0.8
_MUSIC_RHYTHM_MIN = RHYTHM_MIN / 2
"""Who gives a track of music means it: less of a beat is enough."""
_MUSIC_LEAD_SECONDS_MAX = 12.0
"""A film begins on the first beat of its music, if it comes within this time."""
_AUDIBLE = 10 ** (-50 / 20)

NO_BEATS = Beats(instants=(), bpm=0.0, rhythm=0.0)


class Air(msgspec.Struct, frozen=True, kw_only=True):
    """Dead air, by what makes it dead."""

    is_mute: bool
    """Whether nothing is ever heard."""

    silences: tuple[Span, ...]
    still: tuple[Span, ...]
    black: tuple[Span, ...]
    blank: tuple[Span, ...]
    pauses: tuple[Span, ...]

    @property
    def dead(self) -> tuple[tuple[Span, ...], ...]:
        """What is left out; then less of it, for a source of which hardly anything would be left.

        Nobody misses a blank picture, but of one with music on it that may be all there is.
        """
        unheard = (*self.silences, *self.still, *self.pauses)
        less = [(*unheard, *self.black)]
        if not self.is_mute:
            less.append(unheard)
        return ((*unheard, *self.black, *self.blank), *less)


class Survey(msgspec.Struct, frozen=True, kw_only=True):
    analysis: Analysis
    cuts: tuple[float, ...]
    air: Air
    speech: tuple[Span, ...]
    speech_by: str
    voice_db: float | None
    """Mean power of the speech, else of all sound; None: it is silent."""
    looks: tuple[Look, ...]
    cards: tuple[CardLook, ...]
    """Empty, if the film has the shape of the source: nothing is cut off."""
    has_face_model: bool
    beats: Beats
    """Of the source's own sound."""


class Track(msgspec.Struct, frozen=True, kw_only=True):
    """A piece of music to lie under the film."""

    music: Music
    beats: Beats
    """In seconds of the piece."""
    seconds: float

    def film_beats(self, seconds: float) -> tuple[float, ...]:
        """The beats within the first seconds of the film; the piece begins again when it ends."""
        turns = int((seconds + self.music.start_seconds) // self.seconds) + 1
        at = (
            beat + turn * self.seconds - self.music.start_seconds
            for turn in range(turns)
            for beat in self.beats.instants
        )
        return tuple(round(beat, 4) for beat in at if 0 < beat < seconds)


class Surveyor:
    """Looks and listens; holds the models, which are loaded once."""

    def __init__(self, limits: ProbeLimits, models: Path | None) -> None:
        self._limits = limits
        self._face_model = face_model(models)
        voice = models / MODEL_FILE if models else None
        self._voice = Voice(voice) if voice and voice.exists() else None

    def survey(
        self,
        source: Path,
        header: SourceHeader,
        parameters: AutocutParameters,
        report: Callable[[float], None],
    ) -> Survey:
        """Decode a source once, then its sound once more. Errors: InputError."""
        finder = cards = None
        size = float(header.width * header.pixel_shape), float(header.height)
        if self._face_model is not None:
            finder = FaceFinder(self._face_model, *size)
        if parameters.aspect.ratio is not None:
            cards = CardFinder(*size, hdr=header.hdr)
        watches: list[Watch] = [watch.see for watch in (finder, cards) if watch is not None]
        analysis = analyse(
            source,
            header,
            self._limits,
            lambda done: report(0.9 * done),
            lambda frame, at, rotation: _watch(watches, frame, at, rotation),
        )
        report(0.9)
        speech, speech_by, beats = self._listen(source, header, analysis, parameters)
        report(1.0)
        return Survey(
            analysis=analysis,
            cuts=find_cuts(analysis),
            air=find_air(analysis, parameters, speech),
            speech=speech,
            speech_by=speech_by,
            voice_db=_voice_db(analysis, speech, parameters.silence_db),
            looks=tuple(finder.looks) if finder else (),
            cards=tuple(cards.looks) if cards else (),
            has_face_model=finder is not None,
            beats=beats,
        )

    def _listen(
        self,
        source: Path,
        header: SourceHeader,
        analysis: Analysis,
        parameters: AutocutParameters,
    ) -> tuple[tuple[Span, ...], str, Beats]:
        if analysis.audio_index is None or not has_sound(analysis, parameters.silence_db):
            return (), "none", NO_BEATS
        onsets = Onsets()
        if self._voice is not None:
            self._voice.forget()
        for block in listen(source, self._limits, analysis.audio_index, header.origin_seconds):
            onsets.hear(block)
            if self._voice is not None:
                self._voice.hear(block)
        beats = find_beats(onsets.row()) if parameters.beats else NO_BEATS
        if self._voice is None:
            return speech_by_level(analysis), "level", beats
        return self._voice.spans(), "silero", beats

    def track(self, path: Path) -> Track:
        """Listen to a piece of music. Errors: InputError."""
        with opened(path, self._limits) as container:
            if not container.streams.audio:
                raise InputError(InputReason.INPUTS, "The second file has no sound: no music.")
            index = container.streams.audio[0].index
        onsets = Onsets()
        count = 0
        power = peak_until = 0.0
        first_heard: float | None = None
        for block in listen(path, self._limits, index, 0.0):
            onsets.hear(block)
            power += float((block.astype(np.float64) ** 2).sum())
            loud = np.flatnonzero(np.abs(block) > _AUDIBLE)
            if len(loud):
                peak_until = (count + int(loud[-1])) / RATE
                first_heard = (count + int(loud[0])) / RATE if first_heard is None else first_heard
            count += len(block)
        if first_heard is None or peak_until - first_heard < 1.0:
            raise InputError(
                InputReason.INPUTS, "The music can't be heard: it is silent or under a second long."
            )
        beats = find_beats(onsets.row(), _MUSIC_RHYTHM_MIN)
        start = first_heard
        if beats.instants and beats.instants[0] < _MUSIC_LEAD_SECONDS_MAX:
            start = beats.instants[0]
        return Track(
            music=Music(
                path=path,
                audio_index=index,
                start_seconds=round(start, 4),
                level_db=round(10 * float(np.log10(max(power / max(count, 1), 1e-9))), 2),
            ),
            beats=beats,
            seconds=count / RATE,
        )


def _watch(watches: list[Watch], frame: VideoFrame, at_seconds: float, rotation: int) -> None:
    for watch in watches:
        watch(frame, at_seconds, rotation)


def find_air(analysis: Analysis, parameters: AutocutParameters, speech: tuple[Span, ...]) -> Air:
    """What nobody misses. Without sound, motion decides."""
    silences: tuple[Span, ...] = ()
    still: tuple[Span, ...] = ()
    if has_sound(analysis, parameters.silence_db):
        silences = find_silences(
            analysis, silence_db=parameters.silence_db, seconds_min=parameters.silence_seconds
        )
    else:
        still = find_still(analysis, seconds_min=parameters.silence_seconds)
        if sum(span.seconds for span in still) > analysis.seconds / 2:
            still = ()  # a picture that hardly moves at all is the film itself
    margin = parameters.margin_seconds
    return Air(
        is_mute=not has_sound(analysis, parameters.silence_db),
        silences=silences,
        still=still,
        black=without(find_black(analysis), speech, margin=margin, seconds_min=BLACK_SECONDS_MIN),
        blank=without(find_blank(analysis), speech, margin=margin, seconds_min=BLANK_SECONDS_MIN),
        pauses=find_pauses(analysis, speech, parameters),
    )


def find_pauses(
    analysis: Analysis, speech: tuple[Span, ...], parameters: AutocutParameters
) -> tuple[Span, ...]:
    """Where a speaker is quiet in a room that is not: found by the voice, proved by the level."""
    if sum(span.seconds for span in speech) < _SPEECH_SHARE_MIN * analysis.seconds:
        return ()
    voice = _power(analysis, speech)
    margin = max(0.05, parameters.margin_seconds)
    borders = [-margin, *(at for span in speech for at in (span.start, span.end))]
    borders.append(analysis.seconds + margin)
    pauses: list[Span] = []
    for start, end in zip(borders[::2], borders[1::2], strict=True):
        gap = Span(start=max(0.0, start + margin), end=min(analysis.seconds, end - margin))
        if gap.seconds < max(_PAUSE_SECONDS_MIN, parameters.silence_seconds):
            continue
        if _power(analysis, (gap,)) < voice * 10 ** (_PAUSE_DB / 10):
            pauses.append(gap)
    return tuple(pauses)


def _voice_db(analysis: Analysis, speech: tuple[Span, ...], silence_db: float) -> float | None:
    if not has_sound(analysis, silence_db):
        return None
    power = _power(analysis, speech) if speech else float(analysis.power.mean())
    return round(10 * float(np.log10(max(power, 1e-9))), 2)


def _power(analysis: Analysis, spans: tuple[Span, ...]) -> float:
    """Mean power of the sound in these spans."""
    parts = [
        analysis.power[int(s.start / WINDOW_SECONDS) : int(np.ceil(s.end / WINDOW_SECONDS))]
        for s in spans
    ]
    heard = np.concatenate(parts) if parts else np.zeros(0)
    return float(heard.mean()) if len(heard) else 0.0
