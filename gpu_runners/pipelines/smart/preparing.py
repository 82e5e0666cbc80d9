"""From a timeline and opened inputs to a plan for ffmpeg: bakes, mats, moments, captions."""

from pathlib import Path

import msgspec

from gpu_runners.pipelines.fonts import TextStyle, text_picture
from gpu_runners.pipelines.smart.baking import baked, contained, fit_for
from gpu_runners.pipelines.smart.clips import Clip, best_moment, focus_along, with_used
from gpu_runners.pipelines.smart.focus import Focus, Heads, Window, focus_of, heads_in, top_of
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
from gpu_runners.pipelines.smart.moves import Beat, views_of, warp, window_of
from gpu_runners.pipelines.smart.pictures import Photo
from gpu_runners.pipelines.smart.placing import Rectangle, shifts
from gpu_runners.pipelines.smart.sound import ClipSound
from gpu_runners.pipelines.smart.template import rgb
from gpu_runners.pipelines.smart.timeline import RATE, Piece, Segment, Timeline, even
from schema.scenes.smart import Cell, Fit, Language, Look, Template

_SLOWEST = 0.6
"""A clip too short for its slot is slowed down, to this at most; then its last picture stays."""


_FOLLOWED = 0.04
"""Faces that go less far than this part of the picture are not followed."""


_LETTERS = [0] * 128 + [255] * 128
"""What of a picture of words is letters, and not their shadow: by its alpha."""


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
        self._heads: list[Rectangle] = []
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
        """Words as pictures in their places; after the scenes, whose faces they keep clear of."""
        drawn: list[Drawn] = []
        places: list[Rectangle] = []
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
            x = min(max(0, x), max(0, width - picture.width))
            y = min(max(0, y), max(0, height - picture.height))
            drawn.append(Drawn(caption=caption, file=name, x=x, y=y))
            letters = picture.getchannel("A").point(_LETTERS).getbbox() or (0, 0, *picture.size)
            places.append(
                Rectangle(
                    left=x + letters[0],
                    top=y + letters[1],
                    right=x + letters[2],
                    bottom=y + letters[3],
                    start_frame=caption.start_frame,
                    end_frame=caption.end_frame,
                )
            )
        moved = shifts(places, self._heads, height, self._template.bars)
        return tuple(
            msgspec.structs.replace(one, y=one.y + by) for one, by in zip(drawn, moved, strict=True)
        )

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
        self._keep_heads(segment, piece, box, (focus, focus))
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
            piece,
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
                warp="",
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
        piece: Piece,
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
            wide, high = box.width / scaled[0], box.height / scaled[1]
            around = Window(left=0.5 - wide / 2, top=0.5 - high / 2, width=wide, height=high)
            seen = (along[0].seen_in(around), along[1].seen_in(around))
            self._keep_heads(segment, piece, box, seen)
            moved = self._warp(segment, piece, box, seen[0])
            return msgspec.structs.replace(stream, scaled=scaled, blurred=True, warp=moved)
        factor = max(box.width / width, box.height / height)
        scaled = (max(box.width, even(width * factor)), max(box.height, even(height * factor)))
        start, end = (_corner(scaled, box, focus) for focus in along)
        still = max(abs(a - b) for a, b in zip(start, end, strict=True)) < _FOLLOWED * box.width
        end = start if still else end
        seen = (
            along[0].seen_in(_cut(scaled, box, start)),
            along[1].seen_in(_cut(scaled, box, end)),
        )
        self._keep_heads(segment, piece, box, seen)
        moved = self._warp(segment, piece, box, seen[0])
        return msgspec.structs.replace(stream, scaled=scaled, crop=start, crop_end=end, warp=moved)

    def _table(self, look: Look) -> str:
        """Bring a colour table into the scratch directory, where its path is our own."""
        name = f"look-{look.value}.cube"
        (self._directory / name).write_text(path_of(look).read_text())
        return name

    def _look(self, segment: Segment) -> Look:
        return self._template.look if segment.slot.look is None else segment.slot.look

    def _keep_heads(
        self, segment: Segment, piece: Piece, box: Box, seen: tuple[Focus, Focus]
    ) -> None:
        """Remember where on the canvas faces are while a segment is shown."""
        views = views_of(piece.move, segment.slot.move_amount, seen[0])
        found: Heads | None = None
        for focus, view in zip(seen, views, strict=True):
            if focus.heads:
                heads = heads_in(focus.heads, window_of(view))
                found = found.with_(heads) if found else heads
        if found:
            self._heads.append(
                Rectangle(
                    left=box.x + found.left * box.width,
                    top=box.y + found.top * box.height,
                    right=box.x + found.right * box.width,
                    bottom=box.y + found.bottom * box.height,
                    start_frame=segment.start_frame,
                    end_frame=segment.end_frame,
                )
            )

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
    top = top_of(box.height / scaled[1], focus) * scaled[1]
    return int(left) // 2 * 2, int(top) // 2 * 2


def _cut(scaled: tuple[int, int], box: Box, corner: tuple[int, int]) -> Window:
    return Window(
        left=corner[0] / scaled[0],
        top=corner[1] / scaled[1],
        width=box.width / scaled[0],
        height=box.height / scaled[1],
    )
