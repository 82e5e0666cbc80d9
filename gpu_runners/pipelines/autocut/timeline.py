"""The edit as OpenTimelineIO: what an editor opens to go on from the film.

One track of pictures, one of the clip's own sound, one of music; each range is a clip with the
source's name and its range in it. How a range was laid into another shape (cut by a window that
follows something, or fitted in) stands in the metadata of its picture. The media are named, not
reached: an editor links them anew.
"""

from pathlib import Path
from typing import Any

import opentimelineio as otio

from gpu_runners.pipelines.autocut.framing import Framing
from gpu_runners.pipelines.keep_list import KeepList, KeptRange
from gpu_runners.pipelines.render import Music

_NAME = "AutoCut"


def write_timeline(  # noqa: PLR0913 - all that an edit consists of
    path: Path,
    keep: KeepList,
    *,
    source_name: str,
    source_seconds: float,
    has_sound: bool,
    music: Music | None,
    music_name: str,
    title: str,
    framing: Framing | None,
) -> None:
    """Write the edit. Ranges are frames of the film's rate, counted from the source's start."""
    timeline = otio.schema.Timeline(name=title or _NAME)
    rate = float(keep.rate)
    whole = _range(0, int(source_seconds * keep.rate), rate)
    kinds = [("Picture", otio.schema.TrackKind.Video)]
    if has_sound:
        kinds.append(("Sound", otio.schema.TrackKind.Audio))
    for name, kind in kinds:
        track = otio.schema.Track(name=name, kind=kind)
        for number, kept in enumerate(keep.ranges):
            shown = framing if kind == otio.schema.TrackKind.Video else None
            track.append(
                otio.schema.Clip(
                    name=source_name,
                    media_reference=otio.schema.ExternalReference(
                        target_url=source_name, available_range=whole
                    ),
                    source_range=_range(kept.start_frame, kept.frames, rate),
                    metadata={"cutlog": _told(kept, number, shown)},
                )
            )
        timeline.tracks.append(track)
    if music is not None:
        start = round(music.start_seconds * rate)
        track = otio.schema.Track(name="Music", kind=otio.schema.TrackKind.Audio)
        track.append(
            otio.schema.Clip(
                name=music_name,
                media_reference=otio.schema.ExternalReference(target_url=music_name),
                source_range=_range(start, keep.frames, rate),
            )
        )
        timeline.tracks.append(track)
    path.write_text(otio.adapters.write_to_string(timeline, "otio_json"))


def _told(kept: KeptRange, number: int, framing: Framing | None) -> dict[str, Any]:
    """What the format has no words for."""
    told: dict[str, Any] = {"shot": kept.shot}
    if framing is not None:
        fit = framing.fits[number]
        told["laid"] = "cut" if fit is None else "fitted"
        told["follow"] = framing.follows[number].value
        if fit is not None:
            told["fit"] = {"middle": fit.middle, "share": fit.share, "plain": fit.plain}
    return told


def _range(start: int, frames: int, rate: float) -> Any:  # noqa: ANN401 - the library is untyped
    return otio.opentime.TimeRange(
        otio.opentime.RationalTime(start, rate), otio.opentime.RationalTime(frames, rate)
    )
