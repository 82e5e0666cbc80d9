"""The scene `autocut`: one clip in, a short film of its best moments out, with a poster.

Probe, one pass of analysis, shot list, silence list, keep list, one render. Percent follows the
frames that are analysed and the time of the film that is written.
"""

import resource
import time
from fractions import Fraction
from pathlib import Path
from typing import Annotated

import av
import msgspec

from gpu_runners.pipelines.analysis import Analysis, analyse
from gpu_runners.pipelines.keep_list import KeepList, Wish, film_rate, make_keep_list
from gpu_runners.pipelines.pipeline import (
    InputError,
    InputReason,
    Pipeline,
    PipelineError,
    Product,
    ProductFile,
    Progress,
    Report,
    Work,
    parameters_of,
)
from gpu_runners.pipelines.probe import SourceHeader, probe
from gpu_runners.pipelines.probe_limits import ProbeLimits
from gpu_runners.pipelines.render import LOWER_SHORT_SIDE, SHORT_SIDE, RenderPlan, render
from gpu_runners.pipelines.shots import find_cuts
from gpu_runners.pipelines.silence import (
    Span,
    find_black,
    find_silences,
    find_still,
    has_sound,
)
from schema.failures import FailureClass
from schema.words import Scene

_ANALYSED_PERCENT = 35.0
_RENDERED_PERCENT = 98.0
_STEP_PERCENT = 1.0


class AutocutParameters(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    target_seconds: Annotated[float, msgspec.Meta(ge=1, le=600)] = 15.0
    min_shot_seconds: Annotated[float, msgspec.Meta(ge=0.2, le=30)] = 1.0
    silence_db: Annotated[float, msgspec.Meta(ge=-90, le=-10)] = -40.0
    """Sound is silent under this peak, in dBFS."""
    silence_seconds: Annotated[float, msgspec.Meta(ge=0.1, le=30)] = 0.5
    """Shorter pauses stay: they belong to speech and music."""


class Kept(msgspec.Struct, frozen=True, kw_only=True):
    """A range of the source that is in the film, in seconds and in frames of the film's rate."""

    start_seconds: float
    end_seconds: float
    start_frame: int
    end_frame: int
    shot: int


class SourceFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What the source turned out to be: counted, not believed."""

    container: str
    video_codec: str
    width: int
    height: int
    rotation: int
    hdr: bool
    interlaced: bool
    seconds: float
    claimed_seconds: float | None
    frames: int
    claimed_frames: int
    sound: bool
    damaged_packets: int
    bytes: int


class AutocutFacts(msgspec.Struct, frozen=True, kw_only=True):
    """The facts of a film; the keep list is enough to make or check it again."""

    duration_seconds: float
    target_seconds: float
    target_reached: bool
    frames: int
    rate: str
    width: int
    height: int
    sound: bool
    keep: tuple[Kept, ...]
    cuts: tuple[float, ...]
    silences: tuple[Span, ...]
    still: tuple[Span, ...]
    """Where motion stood in for sound: spans without any."""
    black: tuple[Span, ...]
    poster_frame: int
    poster_source_seconds: float
    source: SourceFacts


class _Meter:
    """Turns fractions of a phase into percent of the work, in steps worth telling."""

    def __init__(self, report: Report) -> None:
        self._report = report
        self._percent = -_STEP_PERCENT
        self._phase = ""
        self._started = time.monotonic()

    def tell(self, phase: str, percent: float) -> None:
        percent = max(percent, self._percent)
        if phase == self._phase and percent < self._percent + _STEP_PERCENT:
            return
        self._phase, self._percent = phase, percent
        elapsed = time.monotonic() - self._started
        eta = elapsed * (100 - percent) / percent if percent >= _STEP_PERCENT else None
        self._report(
            Progress(
                percent=round(percent, 2),
                phase=phase,
                eta_seconds=round(eta, 2) if eta is not None else None,
            )
        )


class Autocut:
    """The pipeline; `limits` says which sources it takes."""

    scene = Scene.AUTOCUT.value

    def __init__(self, limits: ProbeLimits | None = None) -> None:
        self._limits = limits or ProbeLimits()

    def run(self, work: Work, report: Report) -> Product:
        before = _cpu_seconds()
        parameters = parameters_of(work, AutocutParameters)
        source = _only_input(work)
        meter = _Meter(report)
        meter.tell("probing", 0.0)
        header = probe(source, self._limits)
        meter.tell("analysing", 1.0)
        analysis = analyse(
            source,
            header,
            self._limits,
            lambda done: meter.tell("analysing", 1 + done * (_ANALYSED_PERCENT - 1)),
        )
        cuts, dead, facts_of_air = _survey(analysis, parameters)
        keep = make_keep_list(
            analysis,
            cuts,
            dead,
            film_rate(analysis, header.rate),
            Wish(
                target_seconds=parameters.target_seconds,
                shot_seconds_min=parameters.min_shot_seconds,
            ),
        )
        if not keep.ranges:
            raise InputError(
                InputReason.TOO_SHORT,
                "Nothing in the video is worth keeping: all of it is dead air.",
            )
        plan = RenderPlan(
            source=source,
            header=header,
            rotation=analysis.rotation,
            interlaced=analysis.interlaced,
            audio_index=analysis.audio_index,
            keep=keep,
            film=work.directory / "film.mp4",
            poster=work.directory / "poster.jpg",
            short_side=LOWER_SHORT_SIDE if work.lower_spec else SHORT_SIDE,
        )
        span = _RENDERED_PERCENT - _ANALYSED_PERCENT
        meter.tell("rendering", _ANALYSED_PERCENT)
        render(plan, lambda done: meter.tell("rendering", _ANALYSED_PERCENT + done * span))
        meter.tell("checking", _RENDERED_PERCENT)
        _check_film(plan)
        facts = _facts(plan, analysis, parameters, cuts, facts_of_air)
        meter.tell("done", 100.0)
        return Product(
            files=(
                ProductFile(name=plan.film.name, path=plan.film, content_type="video/mp4"),
                ProductFile(name=plan.poster.name, path=plan.poster, content_type="image/jpeg"),
            ),
            facts=msgspec.json.decode(msgspec.json.encode(facts)),
            card_seconds=round(_cpu_seconds() - before, 3),
        )


class _Air(msgspec.Struct, frozen=True, kw_only=True):
    silences: tuple[Span, ...]
    still: tuple[Span, ...]
    black: tuple[Span, ...]


def _survey(
    analysis: Analysis, parameters: AutocutParameters
) -> tuple[tuple[float, ...], tuple[Span, ...], _Air]:
    """Cuts, dead air, and what the dead air is made of. Without sound, motion decides."""
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
    black = find_black(analysis)
    air = _Air(silences=silences, still=still, black=black)
    return find_cuts(analysis), (*silences, *still, *black), air


def _only_input(work: Work) -> Path:
    if len(work.inputs) != 1:
        raise InputError(
            InputReason.INPUTS, f"AutoCut takes one video; {len(work.inputs)} were given."
        )
    return next(iter(work.inputs.values()))


def _check_film(plan: RenderPlan) -> None:
    """Hold the film's own index against the plan. Errors: PipelineError (INTERNAL)."""
    with av.open(str(plan.film)) as film:
        frames = film.streams.video[0].frames
        sound = bool(film.streams.audio)
    if frames != plan.keep.frames or sound != (plan.audio_index is not None):
        raise PipelineError(
            FailureClass.INTERNAL,
            f"The film has {frames} frames (sound: {sound}); {plan.keep.frames} were planned.",
        )
    if not plan.poster.exists():
        raise PipelineError(FailureClass.INTERNAL, "The poster was not written.")


def _facts(
    plan: RenderPlan,
    analysis: Analysis,
    parameters: AutocutParameters,
    cuts: tuple[float, ...],
    air: _Air,
) -> AutocutFacts:
    keep, header, rate = plan.keep, plan.header, plan.keep.rate
    return AutocutFacts(
        duration_seconds=_seconds(keep.frames, rate),
        target_seconds=parameters.target_seconds,
        target_reached=keep.target_reached,
        frames=keep.frames,
        rate=f"{rate.numerator}/{rate.denominator}",
        width=plan.geometry.canvas_width,
        height=plan.geometry.canvas_height,
        sound=plan.audio_index is not None,
        keep=tuple(
            Kept(
                start_seconds=_seconds(kept.start_frame, rate),
                end_seconds=_seconds(kept.end_frame, rate),
                start_frame=kept.start_frame,
                end_frame=kept.end_frame,
                shot=kept.shot,
            )
            for kept in keep.ranges
        ),
        cuts=tuple(round(cut, 3) for cut in cuts),
        silences=_rounded(air.silences),
        still=_rounded(air.still),
        black=_rounded(air.black),
        poster_frame=keep.poster_frame,
        poster_source_seconds=_seconds(_source_frame(keep, keep.poster_frame), rate),
        source=_source_facts(header, analysis),
    )


def _source_facts(header: SourceHeader, analysis: Analysis) -> SourceFacts:
    claimed = header.claimed_seconds
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


def _source_frame(keep: KeepList, film_frame: int) -> int:
    """Which frame of the source, at the film's rate, a frame of the film shows."""
    before = 0
    for kept in keep.ranges:
        if film_frame < before + kept.frames:
            return kept.start_frame + film_frame - before
        before += kept.frames
    return keep.ranges[-1].end_frame - 1


def _rounded(spans: tuple[Span, ...]) -> tuple[Span, ...]:
    return tuple(Span(start=round(s.start, 3), end=round(s.end, 3)) for s in spans)


def _seconds(frames: int, rate: Fraction) -> float:
    return round(float(frames / rate), 6)


def _cpu_seconds() -> float:
    own = resource.getrusage(resource.RUSAGE_SELF)
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return own.ru_utime + own.ru_stime + children.ru_utime + children.ru_stime


_: Pipeline = Autocut()
