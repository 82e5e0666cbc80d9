"""The scene `smart`: photos, clips and words poured into a template, cut on the beat of its music.

Inputs are judged and looked through, a timeline is planned on the beats, photos are baked, the
sound is made, then one ffmpeg graph writes the film, its poster and its thumbnails. Percent follows
the inputs read and the time of the film that is written.
"""

import itertools
import os
from pathlib import Path

import av
import msgspec

from gpu_runners.device import cpu_seconds
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
from gpu_runners.pipelines.probe import probe
from gpu_runners.pipelines.probe_limits import ProbeLimits
from gpu_runners.pipelines.smart.clips import Clip, scan
from gpu_runners.pipelines.smart.facts import Facts, facts_of
from gpu_runners.pipelines.smart.ffmpeg import run as run_ffmpeg
from gpu_runners.pipelines.smart.graph import FilmPlan, arguments, files_of, join_thumbnails
from gpu_runners.pipelines.smart.mats import lid_picture
from gpu_runners.pipelines.smart.music import compose
from gpu_runners.pipelines.smart.pictures import Photo, open_photo, photo_format
from gpu_runners.pipelines.smart.preparing import Preparation
from gpu_runners.pipelines.smart.sound import (
    Track,
    is_track,
    mix,
    read_track,
    track_for,
)
from gpu_runners.pipelines.smart.template import template_inline, template_named
from gpu_runners.pipelines.smart.timeline import Grid, Source, Timeline, even, make_timeline
from schema.failures import FailureClass
from schema.scenes.judging import Size
from schema.scenes.smart import INPUTS_MAX, Aspect, SmartParameters, Template, unknown_texts
from schema.words import Scene

_READ_PERCENT = 20.0
_PREPARED_PERCENT = 36.0
_RENDERED_PERCENT = 98.0
_SHORT_SIDES = {Size.PREVIEW: 720, Size.FULL: 1080}
_LOWER_SHORT_SIDE = 480
_BIT_RATES = {480: "1200k", 720: "2000k", 1080: "6000k"}
_RATE_FACTORS = {480: 22, 720: 21, 1080: 20}
_NAME_SHOWN = 60
_TEMPO_SPREAD = 1.42
"""A track more than this much faster or slower than the template is counted in other beats."""


class _Read(msgspec.Struct, frozen=True, kw_only=True):
    """The inputs, opened."""

    names: tuple[str, ...]
    pictures: tuple[Photo | Clip, ...]
    track: Track | None
    track_name: str | None
    notes: tuple[str, ...]


class Smart:
    """The pipeline; `limits` says which clips it takes, `models_directory` may know faces."""

    scene = Scene.SMART.value

    def __init__(self, limits: ProbeLimits | None = None, models_directory: Path = Path()) -> None:
        self._limits = limits or ProbeLimits(seconds_min=0.2)
        self._models = models_directory

    def run(self, work: Work, report: Report) -> Product:
        before = cpu_seconds()
        meter = Meter(report)
        meter.tell("reading", 0.0)
        parameters = parameters_of(work, SmartParameters)
        template = _template_of(parameters)
        read = self._read(work, meter)
        timeline, bpm = _planned(template, parameters, read, lower_spec=work.lower_spec)
        meter.tell("preparing", _READ_PERCENT)
        preparation = Preparation(template, timeline, read.pictures, work.directory, self._models)
        plan, loudness = self._prepared(work, parameters, template, read, preparation, timeline)
        meter.tell("rendering", _PREPARED_PERCENT)
        span = _RENDERED_PERCENT - _PREPARED_PERCENT
        run_ffmpeg(
            arguments(plan, work.directory),
            work.directory,
            report=lambda done: meter.tell(
                "rendering", _PREPARED_PERCENT + span * _part(done, timeline)
            ),
        )
        join_thumbnails(plan, work.directory)
        meter.tell("checking", _RENDERED_PERCENT)
        film, poster, thumbnails = files_of(work.directory, plan)
        _check_film(film, timeline, (poster, thumbnails))
        facts: Facts = facts_of(
            template,
            timeline,
            read.names,
            tuple(preparation.shown),
            bpm=bpm,
            music=read.track_name or template.music.style.value,
            track=read.track_name is not None,
            loudness=loudness,
            notes=read.notes,
        )
        meter.tell("done", 100.0)
        return Product(
            files=(
                ProductFile(name=film.name, path=film, content_type="video/mp4"),
                ProductFile(name=poster.name, path=poster, content_type="image/jpeg"),
                ProductFile(name=thumbnails.name, path=thumbnails, content_type="image/jpeg"),
            ),
            facts=msgspec.json.decode(msgspec.json.encode(facts)),
            card_seconds=round(cpu_seconds() - before, 3),
        )

    def _read(self, work: Work, meter: Meter) -> _Read:
        """Open all inputs. Errors: InputError that names the one that is refused."""
        if not work.inputs:
            raise InputError(InputReason.INPUTS, "A film needs at least one photo or clip.")
        if len(work.inputs) > INPUTS_MAX:
            raise InputError(
                InputReason.INPUTS,
                f"{len(work.inputs)} inputs were given; at most {INPUTS_MAX} are taken.",
            )
        names: list[str] = []
        pictures: list[Photo | Clip] = []
        tracks: list[tuple[str, Track]] = []
        notes: list[str] = []
        for i, (name, path) in enumerate(work.inputs.items()):
            try:
                given = self._open(path, work.directory / f"clip-{i:02}", first=not tracks)
            except InputError as error:
                shown = name[:_NAME_SHOWN]
                raise InputError(
                    InputReason(error.reason or InputReason.INPUTS), f"{shown}: {error.message}"
                ) from error
            if isinstance(given, Track):
                tracks.append((name, given))
            elif given is None:
                notes.append(f"{name[:_NAME_SHOWN]}: a second music track is not used")
            else:
                names.append(name)
                pictures.append(given)
                if isinstance(given, Photo):
                    notes += [f"{name[:_NAME_SHOWN]}: {note}" for note in given.notes]
            meter.tell("reading", (i + 1) / len(work.inputs) * _READ_PERCENT)
        if not pictures:
            raise InputError(
                InputReason.NO_VIDEO, "There is only music: give a photo or a clip as well."
            )
        return _Read(
            names=tuple(names),
            pictures=tuple(pictures),
            track=tracks[0][1] if tracks else None,
            track_name=tracks[0][0] if tracks else None,
            notes=tuple(notes),
        )

    def _open(self, path: Path, own_name: Path, *, first: bool) -> Photo | Clip | Track | None:
        """An input as what it is; None for music after the first."""
        photo = photo_format(path)
        if photo:
            return open_photo(path, photo)
        try:
            header = probe(path, self._limits)
        except InputError as error:
            music = error.reason == InputReason.NO_VIDEO and is_track(path, self._limits)
            if not music:
                raise
            return read_track(path, self._limits) if first else None
        # The graph sees a name of ours, whatever the user's file is called.
        own_name.symlink_to(os.path.abspath(path))  # noqa: PTH100 - a link is not followed here
        return scan(own_name, header, self._limits, self._models)

    def _prepared(
        self,
        work: Work,
        parameters: SmartParameters,
        template: Template,
        read: _Read,
        preparation: Preparation,
        timeline: Timeline,
    ) -> tuple[FilmPlan, float]:
        scenes = tuple(preparation.scene(i) for i in range(len(timeline.segments)))
        drawn = preparation.captions(parameters.language)
        lid: str | None = None
        if template.vignette or template.bars:
            lid = "lid.png"
            lid_picture(template.vignette, template.bars, (timeline.width, timeline.height)).save(
                work.directory / lid, compress_level=1
            )
        if read.track:
            music = track_for(read.track, timeline.seconds)
        else:
            style = template.music
            music = compose(style.style, bpm=style.bpm, root=style.root, seconds=timeline.seconds)
        gain = template.music.clip_sound
        if parameters.clip_sound is not None:
            gain = parameters.clip_sound
        sound, loudness = mix(music, preparation.sounds, gain, work.directory, self._limits)
        short = min(timeline.width, timeline.height)
        plan = FilmPlan(
            timeline=timeline,
            scenes=scenes,
            drawn=drawn,
            lid=lid,
            grain=template.grain,
            fade_in=template.fade_in,
            fade_out=template.fade_out,
            sound=sound,
            limits=self._limits,
            bit_rate_max=_BIT_RATES[short],
            rate_factor=_RATE_FACTORS[short],
        )
        return plan, loudness


def _part(seconds: float, timeline: Timeline) -> float:
    """Of the film that is written; an output that has nothing yet tells nonsense."""
    done = seconds / timeline.seconds
    return min(1.0, done) if done < 2 else 0.0  # noqa: PLR2004


def _template_of(parameters: SmartParameters) -> Template:
    given = parameters.template
    template = template_named(given) if isinstance(given, str) else template_inline(given)
    for fault in unknown_texts(template, parameters):
        raise InputError(InputReason.PARAMETERS, fault.message)
    return template


def _planned(
    template: Template, parameters: SmartParameters, read: _Read, *, lower_spec: bool
) -> tuple[Timeline, float]:
    """The timeline on the beats of the music, and the music's tempo."""
    short = _LOWER_SHORT_SIDE if lower_spec else _SHORT_SIDES[parameters.size]
    kinds = tuple(
        Source.PHOTO if isinstance(given, Photo) else Source.CLIP for given in read.pictures
    )
    bpm = template.music.bpm
    instants: tuple[float, ...] = ()
    if read.track and read.track.beats.instants:
        instants, bpm = _near_tempo(read.track, bpm)
    grid = Grid(instants, bpm)
    size = canvas_of(parameters.aspect or template.aspect, short)
    return make_timeline(template, kinds, grid, size, parameters.texts), bpm


def _near_tempo(track: Track, wished: float) -> tuple[tuple[float, ...], float]:
    """A track's beats, every second one or with some between, as near to a tempo as they come."""
    instants, bpm = track.beats.instants, track.beats.bpm
    while bpm > wished * _TEMPO_SPREAD:
        instants, bpm = instants[::2], bpm / 2
    while bpm < wished / _TEMPO_SPREAD:
        between = [(a + b) / 2 for a, b in itertools.pairwise(instants)]
        instants = tuple(sorted((*instants, *between)))
        bpm *= 2
    return instants, bpm


def canvas_of(aspect: Aspect, short: int) -> tuple[int, int]:
    """Width and height of a film."""
    match aspect:
        case Aspect.WIDE:
            return even(short * 16 / 9), short
        case Aspect.TALL:
            return short, even(short * 16 / 9)
        case Aspect.SQUARE:
            return short, short
        case Aspect.PORTRAIT:
            return short, even(short * 5 / 4)


def _check_film(film: Path, timeline: Timeline, stills: tuple[Path, Path]) -> None:
    """Hold the film's own index against the plan. Errors: PipelineError (INTERNAL)."""
    with av.open(str(film)) as container:
        frames = container.streams.video[0].frames
        sound = bool(container.streams.audio)
    if frames != timeline.frames or not sound:
        raise PipelineError(
            FailureClass.INTERNAL,
            f"The film has {frames} frames (sound: {sound}); {timeline.frames} were planned.",
        )
    if not all(still.exists() for still in stills):
        raise PipelineError(FailureClass.INTERNAL, "The poster or thumbnails were not written.")


_: Pipeline = Smart()
