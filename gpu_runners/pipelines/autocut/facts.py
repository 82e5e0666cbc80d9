"""What AutoCut tells of a film: enough to make or check it again, and to go on from it."""

import msgspec

from gpu_runners.pipelines.autocut.framing import Follow
from gpu_runners.pipelines.fitting import Fit
from gpu_runners.pipelines.silence import Span


class Kept(msgspec.Struct, frozen=True, kw_only=True):
    """A range of the source that is in the film, in seconds and in frames of the film's rate."""

    start_seconds: float
    end_seconds: float
    start_frame: int
    end_frame: int
    shot: int
    follow: Follow | None = None
    """Who led the window, where the picture is cut to another shape."""
    fit: Fit | None = None
    """How it is shown where it is not cut: lettering that is wider than the window."""


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


class BeatFacts(msgspec.Struct, frozen=True, kw_only=True):
    of: str
    """Whose music it is: `music` (a track of its own), `source`, or `none`."""
    bpm: float
    rhythm: float
    """0 to 1: how much of the sound repeats with the beat."""
    film_seconds: tuple[float, ...]
    """The beats that fall into the film, in its own time."""
    joins: int
    """Where one range of the film meets the next."""
    joins_on_beat: int
    """Of these, within one frame of a beat."""


class SoundFacts(msgspec.Struct, frozen=True, kw_only=True):
    lufs_before: float | None
    """Integrated loudness of the mix as it came; None: it is silent, and left so."""
    lufs: float | None
    gain_db: float
    limited: bool
    music: bool
    """Whether a track of music lies under the film."""


class Thumbnails(msgspec.Struct, frozen=True, kw_only=True):
    """The strip of small pictures: one row, each of its part of the film."""

    count: int
    width: int
    height: int
    seconds: float
    """Time of the film that one picture stands for."""


class AutocutFacts(msgspec.Struct, frozen=True, kw_only=True):
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
    blank: tuple[Span, ...]
    """Pictures of one colour without speech over them: left out unless there is nothing else."""
    speech: tuple[Span, ...]
    pauses: tuple[Span, ...]
    """Between words, not silent, but so much quieter that they are left out as silences are."""
    speech_by: str
    """`silero`, or `level` where its model is not at hand, or `none` without sound."""
    faces: float | None
    """Share of the looks at the source that saw a face; None: no model is at hand."""
    beats: BeatFacts
    loudness: SoundFacts | None
    """None: the film has no sound."""
    title: bool
    bars: bool
    """Whether the picture keeps its shape within another, with bars."""
    poster_frame: int
    poster_source_seconds: float
    thumbnails: Thumbnails
    source: SourceFacts
