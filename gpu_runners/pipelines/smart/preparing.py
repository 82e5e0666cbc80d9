"""From a timeline and opened inputs to a plan for ffmpeg: bakes, mats, moments, captions."""

from pathlib import Path

import msgspec

from gpu_runners.pipelines.fonts import Language, TextStyle, text_picture
from gpu_runners.pipelines.smart.baking import baked, contained, fit_for
from gpu_runners.pipelines.smart.clips import Clip, best_moment, focus_along, with_used
from gpu_runners.pipelines.smart.focus import Focus, focus_of
from gpu_runners.pipelines.smart.graph import (
    CellStream,
    ClipStream,
    Drawn,
    Scene,
    StillStream,
    Stream,
)
from gpu_runners.pipelines.smart.looks import path_of
from gpu_runners.pipelines.smart.mats import (
    Box,
    backdrop_picture,
    box_of,
    fills_canvas,
    mat_picture,
)
from gpu_runners.pipelines.smart.moves import Beat, views_of, warp
from gpu_runners.pipelines.smart.pictures import Photo
from gpu_runners.pipelines.smart.sound import ClipSound
from gpu_runners.pipelines.smart.template import Cell, Fit, Look, Template, rgb
from gpu_runners.pipelines.smart.timeline import RATE, Piece, Segment, Timeline, even

_SLOWEST = 0.6
"""A clip too short for its slot is slowed down, to this at most; then its last picture stays."""


_FOLLOWED = 0.04
"""Faces that go less far than this part of the picture are not followed."""


class Shown(msgspec.Struct, frozen=True, kw_only=True):
    """What a piece shows, for the facts."""

    source: int
    start_seconds: float | None
    speed: float | None
    faces: int


class Preparation:
    """Makes the files that a plan needs, in the scratch directory."""

    def __init__(
        self,
        template: Template,
        timeline: Timeline,
        inputs: tuple[Photo | Clip, ...],
        directory: Path,
        models: Path,
    ) -> None:
        self._template = template
        self._timeline = timeline
        self._inputs = list(inputs)
        self._directory = directory
        self._models = models
        self._canvas = (timeline.width, timeline.height)
        self._backdrop = backdrop_picture(template.backdrop, self._canvas)
        self._focus: dict[tuple[int, int, int], Focus] = {}
        self._compares = any(
            cell.take is not None for slot in template.slots for cell in slot.cells[1:]
        )
        self.shown: list[tuple[Shown, ...]] = []
        self.sounds: list[ClipSound] = []

    def scene(self, number: int) -> Scene:
        segment = self._timeline.segments[number]
        cells: list[CellStream] = []
        shown: list[Shown] = []
        for place, piece in enumerate(segment.pieces):
            box = self._box(piece.cell)
            stream, told = self._stream(segment, piece, box, f"{number:02}-{place}")
            cells.append(CellStream(x=box.x, y=box.y, stream=stream))
            shown.append(told)
        self.shown.append(tuple(shown))
        mat: str | None = None
        if not (len(segment.pieces) == 1 and fills_canvas(segment.pieces[0].cell)):
            mat = f"mat-{number:02}.png"
            made = mat_picture(segment.slot.cells, self._template.backdrop, self._canvas)
            made.save(self._directory / mat, compress_level=1)
        return Scene(segment=segment, cells=tuple(cells), mat=mat)

    def captions(self, language: Language | None) -> tuple[Drawn, ...]:
        drawn: list[Drawn] = []
        width, height = self._canvas
        short = min(self._canvas)
        for i, caption in enumerate(self._timeline.captions):
            text = caption.text
            pixels = round(text.size * short)
            picture = text_picture(
                caption.words,
                TextStyle(
                    pixels=pixels,
                    family=text.family,
                    weight=text.weight,
                    italic=text.italic,
                    colour=rgb(text.colour),
                    align=text.align,
                    tracking=text.tracking,
                    shadow=text.shadow,
                    outline_pixels=round(text.outline * pixels),
                    outline=rgb(text.outline_colour),
                    plate=rgb(text.plate) if text.plate else None,
                    plate_opacity=text.plate_opacity,
                ),
                width_max=round(text.width * width),
                lines_max=text.lines,
                language=language,
            )
            if picture is None:
                continue
            name = f"text-{i:02}.png"
            picture.save(self._directory / name, compress_level=1)
            by = {"left": 0.0, "right": 1.0}.get(text.align, 0.5)
            x = round(text.x * width - by * picture.width)
            y = round(text.y * height - picture.height / 2)
            drawn.append(
                Drawn(
                    caption=caption,
                    file=name,
                    x=min(max(0, x), max(0, width - picture.width)),
                    y=min(max(0, y), max(0, height - picture.height)),
                )
            )
        return tuple(drawn)

    def _stream(self, segment: Segment, piece: Piece, box: Box, name: str) -> tuple[Stream, Shown]:
        given = self._inputs[piece.source]
        if isinstance(given, Photo):
            return self._still(segment, piece, given, box, name)
        return self._moment(segment, piece, given, box)

    def _still(
        self, segment: Segment, piece: Piece, photo: Photo, box: Box, name: str
    ) -> tuple[Stream, Shown]:
        focus = self._focus_of(piece.source, photo)
        picture, focus = baked(
            photo.picture,
            (box.width, box.height),
            fit=segment.slot.fit,
            focus=focus,
            look=self._look(segment),
            glow=segment.slot.effects.glow,
            backdrop=self._backdrop,
        )
        file = f"photo-{name}.ppm"
        picture.save(self._directory / file)
        stream = StillStream(file=file, warp=self._warp(segment, piece, box, focus))
        return stream, Shown(source=piece.source, start_seconds=None, speed=None, faces=focus.faces)

    def _box(self, cell: Cell) -> Box:
        """Where a cell's picture lies; between the bars, if it would fill the canvas."""
        box = box_of(cell, self._canvas)
        if not (self._template.bars and fills_canvas(cell)):
            return box
        bar = round(self._template.bars * self._canvas[1] / 2) * 2
        return Box(x=0, y=bar, width=box.width, height=self._canvas[1] - 2 * bar)

    def _focus_of(self, source: int, photo: Photo) -> Focus:
        """Where to look. Pictures that a template compares are cut alike, so that they match."""
        key = (photo.width, photo.height, 0 if self._compares else source)
        if key not in self._focus:
            self._focus[key] = focus_of(photo.picture, self._models)
        return self._focus[key]

    def _moment(self, segment: Segment, piece: Piece, clip: Clip, box: Box) -> tuple[Stream, Shown]:
        seconds = segment.frames / RATE
        speed = segment.slot.effects.speed
        if seconds * speed > clip.seconds:
            speed = max(min(speed, _SLOWEST), clip.seconds / seconds)
        taken = min(clip.seconds, seconds * speed)
        start = best_moment(clip, taken)
        self._inputs[piece.source] = with_used(clip, start, taken)
        if clip.audio_index is not None:
            self.sounds.append(
                ClipSound(
                    file=clip.path.name,
                    demuxer=clip.demuxer,
                    stream=clip.audio_index,
                    start_seconds=start,
                    speed=speed,
                    at_seconds=segment.start_frame / RATE,
                    seconds=(segment.end_frame - segment.start_frame) / RATE,
                )
            )
        look = self._look(segment)
        along = focus_along(clip, start, taken)
        stream = self._fitted(
            segment,
            clip,
            along,
            box,
            ClipStream(
                file=clip.path.name,
                demuxer=clip.demuxer,
                header=clip.header,
                interlaced=clip.interlaced,
                start_seconds=start,
                speed=speed,
                scaled=(box.width, box.height),
                crop=(0, 0),
                crop_end=(0, 0),
                size=(box.width, box.height),
                blurred=False,
                table=None if look is Look.NONE else self._table(look),
                glow=segment.slot.effects.glow,
                warp=self._warp(segment, piece, box, along[0]),
            ),
        )
        told = Shown(
            source=piece.source,
            start_seconds=start,
            speed=round(speed, 4),
            faces=along[0].faces,
        )
        return stream, told

    def _fitted(
        self,
        segment: Segment,
        clip: Clip,
        along: tuple[Focus, Focus],
        box: Box,
        stream: ClipStream,
    ) -> ClipStream:
        width, height = clip.shown_width, clip.shown_height
        wished = Fit.CONTAIN if segment.slot.fit is Fit.PLAIN else segment.slot.fit
        fit = fit_for(width, height, box.width / box.height, wished, along[0])
        if fit is Fit.CONTAIN:
            factor = contained(width, height, (box.width, box.height))
            scaled = (even(width * factor), even(height * factor))
            return msgspec.structs.replace(stream, scaled=scaled, blurred=True)
        factor = max(box.width / width, box.height / height)
        scaled = (max(box.width, even(width * factor)), max(box.height, even(height * factor)))
        start, end = (_corner(scaled, box, focus) for focus in along)
        still = max(abs(a - b) for a, b in zip(start, end, strict=True)) < _FOLLOWED * box.width
        return msgspec.structs.replace(
            stream, scaled=scaled, crop=start, crop_end=start if still else end
        )

    def _table(self, look: Look) -> str:
        """Bring a colour table into the scratch directory, where its path is our own."""
        name = f"look-{look.value}.cube"
        (self._directory / name).write_text(path_of(look).read_text())
        return name

    def _look(self, segment: Segment) -> Look:
        return self._template.look if segment.slot.look is None else segment.slot.look

    def _warp(self, segment: Segment, piece: Piece, box: Box, focus: Focus) -> str:
        effects = segment.slot.effects
        amount = segment.slot.move_amount
        return warp(
            views_of(piece.move, amount, focus),
            segment.frames,
            tilt=piece.cell.tilt,
            aspect=box.width / box.height,
            punch=effects.zoom,
            shake=effects.shake,
            beat=self._beat(segment),
        )

    def _beat(self, segment: Segment) -> Beat:
        """The beats as a segment's stream meets them."""
        beats = self._timeline.beat_frames
        start = segment.start_frame - segment.lead
        later = [frame for frame in beats if frame >= segment.start_frame] or [start]
        # Whole frames would drift against the music: the mean of some beats does not.
        some = [*beats[max(0, beats.index(later[0])) :][:9]] if later[0] in beats else []
        frames = (some[-1] - some[0]) / (len(some) - 1) if len(some) > 1 else 15.0
        return Beat(frames=frames, offset=float(later[0] - start))


def _corner(scaled: tuple[int, int], box: Box, focus: Focus) -> tuple[int, int]:
    """Left and top, in even pixels, of a cut around the focus."""
    left = min(max(0.0, focus.x * scaled[0] - box.width / 2), scaled[0] - box.width)
    top = min(max(0.0, focus.y * scaled[1] - box.height / 2), scaled[1] - box.height)
    return int(left) // 2 * 2, int(top) // 2 * 2
