"""The pipeline: probe, one pass of analysis, the edit, its loudness, one render, a check.

Percent follows the frames that are analysed and the time of the film that is written.
"""

from collections.abc import Callable
from fractions import Fraction
from pathlib import Path

import av
import msgspec
import numpy as np

from gpu_runners.device import cpu_seconds
from gpu_runners.pipelines.autocut.facts import (
    AutocutFacts,
    BeatFacts,
    Kept,
    SoundFacts,
    SourceFacts,
    Thumbnails,
)
from gpu_runners.pipelines.autocut.framing import Framing, frame_subject
from gpu_runners.pipelines.autocut.survey import Survey, Surveyor, Track
from gpu_runners.pipelines.autocut.timeline import write_timeline
from gpu_runners.pipelines.autocut.titles import draw_title
from gpu_runners.pipelines.keep_list import KeepList, Signs, Wish, film_rate, make_keep_list
from gpu_runners.pipelines.loudness import Loudness, settle
from gpu_runners.pipelines.meter import Meter
from gpu_runners.pipelines.pipeline import (
    InputError,
    InputReason,
    Pipeline,
    PipelineError,
    Product,
    ProductFile,
    Report,
    Work,
    parameters_of,
)
from gpu_runners.pipelines.probe import SourceHeader, probe
from gpu_runners.pipelines.probe_limits import ProbeLimits
from gpu_runners.pipelines.render import (
    FULL_SHORT_SIDE,
    LOWER_SHORT_SIDE,
    SHORT_SIDE,
    Camera,
    RenderPlan,
    mix_sound,
    render,
    shown_ratio,
)
from gpu_runners.pipelines.silence import Span
from schema.failures import FailureClass
from schema.scenes.autocut import AutocutParameters
from schema.scenes.judging import Size
from schema.words import Scene

_ANALYSED_PERCENT = 45.0
_MEASURED_PERCENT = 50.0
_RENDERED_PERCENT = 98.0
_INPUTS_MAX = 2


class _Inputs(msgspec.Struct, frozen=True, kw_only=True):
    """The clip, and a piece of music beside it."""

    name: str
    clip: Path
    header: SourceHeader
    music_name: str = ""
    music: Path | None = None


class _Edit(msgspec.Struct, frozen=True, kw_only=True):
    """All that was decided before the film is made."""

    survey: Survey
    track: Track | None
    keep: KeepList
    film_beats: tuple[float, ...]
    """Seconds of the film; of the track, or of the source's own music as it stands in the film."""
    framing: Framing | None
    wants_shape: bool
    """Whether another shape than the source's was asked for."""


class Autocut:
    """The pipeline; `limits` says which sources it takes, the folder has the small models."""

    scene = Scene.AUTOCUT.value

    def __init__(
        self, limits: ProbeLimits | None = None, models_directory: Path | None = None
    ) -> None:
        self._limits = limits or ProbeLimits()
        self._models = models_directory
        self._surveyor: Surveyor | None = None

    def run(self, work: Work, report: Report) -> Product:
        before = cpu_seconds()
        parameters = parameters_of(work, AutocutParameters)
        meter = Meter(report)
        meter.tell("probing", 0.0)
        inputs = _told_apart(work, self._limits)
        if self._surveyor is None:
            self._surveyor = Surveyor(self._limits, self._models)
        meter.tell("analysing", 1.0)
        track = self._surveyor.track(inputs.music) if inputs.music else None
        survey = self._surveyor.survey(
            inputs.clip,
            inputs.header,
            parameters,
            lambda done: meter.tell("analysing", 1 + done * (_ANALYSED_PERCENT - 1)),
        )
        edit = _edit(inputs, survey, track, parameters)
        plan = _plan(work, inputs, edit, parameters)
        plan, loudness = _leveled(plan, meter)
        span = _RENDERED_PERCENT - _MEASURED_PERCENT
        meter.tell("rendering", _MEASURED_PERCENT)
        self.make(plan, lambda done: meter.tell("rendering", _MEASURED_PERCENT + done * span))
        meter.tell("checking", _RENDERED_PERCENT)
        timeline = work.directory / "edit.otio"
        write_timeline(
            timeline,
            edit.keep,
            source_name=inputs.name,
            source_seconds=survey.analysis.seconds,
            has_sound=plan.audio_index is not None,
            music=plan.music,
            music_name=inputs.music_name,
            title=parameters.title,
            framing=edit.framing,
        )
        _check_film(plan)
        facts = _facts(plan, inputs.header, edit, parameters, loudness)
        meter.tell("done", 100.0)
        return Product(
            files=(
                _file(plan.film, "video/mp4"),
                _file(plan.poster, "image/jpeg"),
                _file(plan.thumbnails, "image/jpeg"),
                _file(timeline, "application/json"),
            ),
            facts=msgspec.json.decode(msgspec.json.encode(facts)),
            card_seconds=round(cpu_seconds() - before, 3),
        )

    def make(self, plan: RenderPlan, report: Callable[[float], None]) -> None:
        """Make the film that was planned. A benchmark watches this."""
        render(plan, report)


def _told_apart(work: Work, limits: ProbeLimits) -> _Inputs:
    """Which input is the clip and which the music. Errors: InputError."""
    if not 1 <= len(work.inputs) <= _INPUTS_MAX:
        raise InputError(
            InputReason.INPUTS,
            "AutoCut takes one video and, beside it, one piece of music; "
            f"{len(work.inputs)} files were given.",
        )
    clips: list[tuple[str, Path, SourceHeader]] = []
    sounds: list[tuple[str, Path]] = []
    for name, path in work.inputs.items():
        try:
            clips.append((name, path, probe(path, limits)))
        except InputError as refused:
            if refused.reason != InputReason.NO_VIDEO or len(work.inputs) == 1:
                raise
            sounds.append((name, path))
    if len(clips) != 1:
        raise InputError(
            InputReason.INPUTS,
            "Of two files one must be a video and the other a piece of music (sound alone); "
            f"{len(clips) or 'none'} of these is a video.",
        )
    name, clip, header = clips[0]
    music_name, music = sounds[0] if sounds else ("", None)
    return _Inputs(name=name, clip=clip, header=header, music_name=music_name, music=music)


def _edit(
    inputs: _Inputs, survey: Survey, track: Track | None, parameters: AutocutParameters
) -> _Edit:
    """Decide what is kept and how it is framed. Errors: InputError, if nothing is."""
    analysis = survey.analysis
    film_beats: tuple[float, ...] = ()
    if track is not None and parameters.beats:
        film_beats = track.film_beats(parameters.target_seconds)
    keep = _keep_list(inputs, survey, track, parameters, film_beats)
    if not keep.ranges:
        raise InputError(
            InputReason.TOO_SHORT,
            "Nothing in the video is worth keeping: all of it is dead air.",
        )
    ratio = shown_ratio(inputs.header, analysis.rotation)
    framing = frame_subject(analysis, survey.looks, keep, ratio, parameters.aspect, survey.cards)
    wanted = parameters.aspect.ratio
    return _Edit(
        survey=survey,
        track=track,
        keep=keep,
        film_beats=film_beats
        if track is not None
        else tuple(_in_film(keep, at) for at in survey.beats.instants if _kept(keep, at)),
        framing=framing,
        wants_shape=wanted is not None,
    )


def _keep_list(
    inputs: _Inputs,
    survey: Survey,
    track: Track | None,
    parameters: AutocutParameters,
    film_beats: tuple[float, ...],
) -> KeepList:
    """What is kept: if hardly anything but dead air is there, some of that too."""
    wish = Wish(
        target_seconds=parameters.target_seconds,
        shot_seconds_min=parameters.min_shot_seconds,
        margin_seconds=parameters.margin_seconds,
    )
    signs = Signs(
        speech=survey.speech,
        looks=survey.looks,
        source_beats=survey.beats.instants if track is None else (),
        film_beats=film_beats,
    )
    rate = film_rate(survey.analysis, inputs.header.rate)
    lists = (
        make_keep_list(survey.analysis, survey.cuts, dead, rate, wish, signs)
        for dead in survey.air.dead
    )
    keep = next(lists)
    while _is_scraps(keep, survey, wish) and (more := next(lists, None)) is not None:
        keep = max(keep, more, key=lambda made: made.frames)
    return keep


def _is_scraps(keep: KeepList, survey: Survey, wish: Wish) -> bool:
    """Whether no shot of the wished length is left, and little in all."""
    longest = max((kept.frames for kept in keep.ranges), default=0) / float(keep.rate)
    possible = min(wish.target_seconds, survey.analysis.seconds)
    return longest < wish.shot_seconds_min and keep.seconds < possible / 2


def _plan(work: Work, inputs: _Inputs, edit: _Edit, parameters: AutocutParameters) -> RenderPlan:
    analysis, framing = edit.survey.analysis, edit.framing
    short_side = FULL_SHORT_SIDE if parameters.size is Size.FULL else SHORT_SIDE
    plan = RenderPlan(
        source=inputs.clip,
        header=inputs.header,
        rotation=analysis.rotation,
        interlaced=analysis.interlaced,
        audio_index=analysis.audio_index,
        keep=edit.keep,
        film=work.directory / "film.mp4",
        short_side=LOWER_SHORT_SIDE if work.lower_spec else short_side,
        ratio=parameters.aspect.ratio,
        camera=Camera(across=framing.across, middles=framing.middles, fits=framing.fits)
        if framing
        else None,
        music=edit.track.music if edit.track else None,
        voice_db=edit.survey.voice_db,
        speech=_film_spans(edit.keep, edit.survey.speech),
    )
    title = work.directory / "title.png"
    if parameters.title.strip() and draw_title(parameters.title, plan.geometry, title):
        plan = msgspec.structs.replace(plan, title=title)
    return plan


def _leveled(plan: RenderPlan, meter: Meter) -> tuple[RenderPlan, Loudness | None]:
    """Measure the film's sound, and set the gain that brings it to its loudness."""
    if not plan.has_sound:
        return plan, None
    meter.tell("measuring", _ANALYSED_PERCENT)
    span = _MEASURED_PERCENT - _ANALYSED_PERCENT
    mix = mix_sound(plan, lambda done: meter.tell("measuring", _ANALYSED_PERCENT + done * span))
    loudness = settle(mix)
    mix.unlink()
    if loudness.before_lufs is None:
        return plan, loudness
    return msgspec.structs.replace(plan, gain_db=loudness.gain_db), loudness


def _check_film(plan: RenderPlan) -> None:
    """Hold the film's own index against the plan. Errors: PipelineError (INTERNAL)."""
    with av.open(str(plan.film)) as film:
        frames = film.streams.video[0].frames
        sound = bool(film.streams.audio)
    if frames != plan.keep.frames or sound != plan.has_sound:
        raise PipelineError(
            FailureClass.INTERNAL,
            f"The film has {frames} frames (sound: {sound}); {plan.keep.frames} were planned.",
        )
    for picture in (plan.poster, plan.thumbnails):
        if not picture.exists():
            raise PipelineError(FailureClass.INTERNAL, f"{picture.name} was not written.")


def _facts(
    plan: RenderPlan,
    header: SourceHeader,
    edit: _Edit,
    parameters: AutocutParameters,
    loudness: Loudness | None,
) -> AutocutFacts:
    keep, rate, survey = plan.keep, plan.keep.rate, edit.survey
    none = (None,) * len(keep.ranges)
    follows, fits = (edit.framing.follows, edit.framing.fits) if edit.framing else (none, none)
    looks = survey.looks
    return AutocutFacts(
        duration_seconds=_seconds(keep.frames, rate),
        target_seconds=parameters.target_seconds,
        target_reached=keep.target_reached,
        frames=keep.frames,
        rate=f"{rate.numerator}/{rate.denominator}",
        width=plan.geometry.canvas_width,
        height=plan.geometry.canvas_height,
        sound=plan.has_sound,
        keep=tuple(
            Kept(
                start_seconds=_seconds(kept.start_frame, rate),
                end_seconds=_seconds(kept.end_frame, rate),
                start_frame=kept.start_frame,
                end_frame=kept.end_frame,
                shot=kept.shot,
                follow=follow,
                fit=fit,
            )
            for kept, follow, fit in zip(keep.ranges, follows, fits, strict=True)
        ),
        cuts=tuple(round(cut, 3) for cut in survey.cuts),
        silences=_rounded(survey.air.silences),
        still=_rounded(survey.air.still),
        black=_rounded(survey.air.black),
        blank=_rounded(survey.air.blank),
        speech=_rounded(survey.speech),
        pauses=_rounded(survey.air.pauses),
        speech_by=survey.speech_by,
        faces=round(sum(bool(look.faces) for look in looks) / max(1, len(looks)), 3)
        if survey.has_face_model
        else None,
        beats=_beat_facts(edit),
        loudness=_sound_facts(plan, loudness),
        title=plan.title is not None,
        bars=edit.wants_shape and edit.framing is None and _has_bars(plan),
        poster_frame=keep.poster_frame,
        poster_source_seconds=_seconds(_source_frame(keep, keep.poster_frame), rate),
        thumbnails=Thumbnails(
            count=plan.thumbnail_count,
            width=plan.thumbnail_size[0],
            height=plan.thumbnail_size[1],
            seconds=_seconds(plan.thumbnail_step, rate),
        ),
        source=_source_facts(header, survey),
    )


def _has_bars(plan: RenderPlan) -> bool:
    laid = plan.geometry
    return (laid.width, laid.height) != (laid.canvas_width, laid.canvas_height)


def _beat_facts(edit: _Edit) -> BeatFacts:
    found = edit.track.beats if edit.track else edit.survey.beats
    of = "none"
    if edit.film_beats:
        of = "music" if edit.track else "source"
    joins = np.cumsum([kept.frames for kept in edit.keep.ranges])[:-1]
    at = np.round(np.array(edit.film_beats) * float(edit.keep.rate))
    on_beat = sum(bool(len(at)) and float(np.abs(at - join).min()) <= 1 for join in joins)
    return BeatFacts(
        of=of,
        bpm=found.bpm if edit.film_beats else 0.0,
        rhythm=found.rhythm,
        film_seconds=tuple(round(beat, 3) for beat in edit.film_beats),
        joins=len(joins),
        joins_on_beat=on_beat,
    )


def _sound_facts(plan: RenderPlan, loudness: Loudness | None) -> SoundFacts | None:
    if loudness is None:
        return None
    return SoundFacts(
        lufs_before=loudness.before_lufs,
        lufs=loudness.after_lufs,
        gain_db=loudness.gain_db,
        limited=loudness.limited,
        music=plan.music is not None,
    )


def _source_facts(header: SourceHeader, survey: Survey) -> SourceFacts:
    claimed, analysis = header.claimed_seconds, survey.analysis
    return SourceFacts(
        container=header.container,
        video_codec=header.video_codec,
        width=header.width,
        height=header.height,
        rotation=analysis.rotation,
        hdr=header.hdr,
        interlaced=analysis.interlaced,
        seconds=round(analysis.seconds, 3),
        claimed_seconds=round(claimed, 3) if claimed is not None else None,
        frames=len(analysis.instants),
        claimed_frames=header.claimed_frames,
        sound=analysis.audio_index is not None,
        damaged_packets=analysis.damaged_packets,
        bytes=header.bytes,
    )


def _file(path: Path, content_type: str) -> ProductFile:
    return ProductFile(name=path.name, path=path, content_type=content_type)


def _source_frame(keep: KeepList, film_frame: int) -> int:
    """Which frame of the source, at the film's rate, a frame of the film shows."""
    before = 0
    for kept in keep.ranges:
        if film_frame < before + kept.frames:
            return kept.start_frame + film_frame - before
        before += kept.frames
    return keep.ranges[-1].end_frame - 1


def _film_spans(keep: KeepList, spans: tuple[Span, ...]) -> tuple[Span, ...]:
    """Spans of the source where they stand in the film; what is left out is gone."""
    rate = float(keep.rate)
    found: list[Span] = []
    before = 0
    for kept in keep.ranges:
        start, end = kept.start_frame / rate, kept.end_frame / rate
        shift = before / rate - start
        found += [
            Span(start=max(start, span.start) + shift, end=min(end, span.end) + shift)
            for span in spans
            if span.start < end and span.end > start
        ]
        before += kept.frames
    return tuple(found)


def _kept(keep: KeepList, at_seconds: float) -> bool:
    frame = at_seconds * float(keep.rate)
    return any(kept.start_frame <= frame < kept.end_frame for kept in keep.ranges)


def _in_film(keep: KeepList, at_seconds: float) -> float:
    """Where an instant of the source, one that is kept, stands in the film."""
    before = 0
    frame = at_seconds * float(keep.rate)
    for kept in keep.ranges:
        if kept.start_frame <= frame < kept.end_frame:
            return (before + frame - kept.start_frame) / float(keep.rate)
        before += kept.frames
    raise ValueError(f"{at_seconds} s is not in the film")


def _rounded(spans: tuple[Span, ...]) -> tuple[Span, ...]:
    return tuple(Span(start=round(s.start, 3), end=round(s.end, 3)) for s in spans)


def _seconds(frames: int, rate: Fraction) -> float:
    return round(float(frames / rate), 6)


_: Pipeline = Autocut()
