"""What is told about a finished film: enough to check it, and to make it again."""

import itertools

import msgspec

from gpu_runners.pipelines.smart.preparing import Shown
from gpu_runners.pipelines.smart.timeline import RATE, Timeline
from schema.scenes.smart import Template


class ShownFacts(msgspec.Struct, frozen=True, kw_only=True):
    input: str
    kind: str
    move: str
    start_seconds: float | None
    """Of a clip, where the stretch begins."""
    speed: float | None
    faces: int


class SlotFacts(msgspec.Struct, frozen=True, kw_only=True):
    slot: int
    start_seconds: float
    end_seconds: float
    transition: str
    shown: tuple[ShownFacts, ...]


class CutFacts(msgspec.Struct, frozen=True, kw_only=True):
    seconds: float
    frame: int
    off_beat_frames: int
    """From the nearest beat, or half of one."""
    on_beat: bool


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    template: str
    duration_seconds: float
    frames: int
    rate: int
    width: int
    height: int
    slots: tuple[SlotFacts, ...]
    cuts: tuple[CutFacts, ...]
    beats: tuple[float, ...]
    bpm: float
    music: str
    """The style of our own music, or the name of the track."""
    track: bool
    loudness_lufs: float | None
    """None: there is nothing to hear."""
    texts: tuple[str, ...]
    """Keys of those that are shown; the words themselves are private."""
    unused: tuple[str, ...]
    """Inputs for which the template has no slot."""
    repeated: int
    """Cells that show an input again."""
    slots_left_out: int
    poster_frame: int
    notes: tuple[str, ...]


def facts_of(  # noqa: PLR0913 - all that was decided comes together here
    template: Template,
    timeline: Timeline,
    names: tuple[str, ...],
    shown: tuple[tuple[Shown, ...], ...],
    *,
    bpm: float,
    music: str,
    track: bool,
    loudness: float,
    notes: tuple[str, ...],
) -> Facts:
    slots = tuple(
        SlotFacts(
            slot=segment.number,
            start_seconds=_seconds(segment.start_frame),
            end_seconds=_seconds(segment.end_frame),
            transition=segment.transition.value,
            shown=tuple(
                ShownFacts(
                    input=names[piece.source],
                    kind=piece.kind.value,
                    move=piece.move.value,
                    start_seconds=told.start_seconds,
                    speed=told.speed,
                    faces=told.faces,
                )
                for piece, told in zip(segment.pieces, pieces, strict=True)
            ),
        )
        for segment, pieces in zip(timeline.segments, shown, strict=True)
    )
    return Facts(
        template=template.name,
        duration_seconds=_seconds(timeline.frames),
        frames=timeline.frames,
        rate=RATE,
        width=timeline.width,
        height=timeline.height,
        slots=slots,
        cuts=tuple(_cut(frame, timeline.beat_frames) for frame in timeline.cut_frames),
        beats=tuple(_seconds(frame) for frame in timeline.beat_frames),
        bpm=round(bpm, 2),
        music=music,
        track=track,
        loudness_lufs=None if loudness == float("-inf") else round(loudness, 2),
        texts=tuple(dict.fromkeys(caption.text.key for caption in timeline.captions)),
        unused=tuple(names[i] for i in timeline.unused),
        repeated=timeline.repeated,
        slots_left_out=timeline.left_out,
        poster_frame=timeline.poster_frame,
        notes=notes,
    )


def _cut(frame: int, beats: tuple[int, ...]) -> CutFacts:
    halves = [round((a + b) / 2) for a, b in itertools.pairwise(beats)]
    off = min(abs(frame - beat) for beat in (*beats, *halves))
    return CutFacts(seconds=_seconds(frame), frame=frame, off_beat_frames=off, on_beat=off <= 1)


def _seconds(frames: int) -> float:
    return round(frames / RATE, 4)
