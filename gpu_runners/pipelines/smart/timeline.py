"""From a template and inputs to a film's plan: which input in which slot, frame by frame.

Pure: no file is read here. Cuts stand on beats; a transition's middle stands on its beat. Inputs
too few repeat or shorten the film, inputs too many extend it as far as the template says; what is
left over is told.
"""

from enum import StrEnum
from fractions import Fraction

import msgspec

from schema.scenes.smart import (
    Aspect,
    Cell,
    Kind,
    Missing,
    Move,
    Slot,
    Template,
    Text,
    Transition,
    TransitionKind,
)

RATE = 30
"""Frames a second: photos have none of their own, clips are brought to it."""

_SLOT_FRAMES_MIN = 6
_STANDING = (Aspect.TALL, Aspect.PORTRAIT)
_MIDDLE = 0.5
_MOVES_WIDE = (Move.IN, Move.RIGHT, Move.OUT, Move.LEFT)
_MOVES_TALL = (Move.IN, Move.UP, Move.OUT, Move.DOWN)


class Source(StrEnum):
    PHOTO = "photo"
    CLIP = "clip"


class Piece(msgspec.Struct, frozen=True, kw_only=True):
    """One cell of one slot, and what fills it."""

    cell: Cell
    source: int
    """Place among the inputs."""
    kind: Source
    move: Move
    turn: int
    """How many times this input was used before."""


class Segment(msgspec.Struct, frozen=True, kw_only=True):
    slot: Slot
    number: int
    """Which slot of the template it is."""
    start_frame: int
    end_frame: int
    lead: int
    """Frames shown before the start, while the transition into it runs."""
    tail: int
    """Frames shown after the end."""
    pieces: tuple[Piece, ...]
    transition: TransitionKind

    @property
    def frames(self) -> int:
        return self.lead + self.end_frame - self.start_frame + self.tail


class Caption(msgspec.Struct, frozen=True, kw_only=True):
    text: Text
    words: str
    start_frame: int
    end_frame: int


class Timeline(msgspec.Struct, frozen=True, kw_only=True):
    width: int
    height: int
    segments: tuple[Segment, ...]
    captions: tuple[Caption, ...]
    frames: int
    poster_frame: int
    beat_frames: tuple[int, ...]
    """Frames of the beats within the film."""
    unused: tuple[int, ...]
    repeated: int
    """Cells that got an input again."""
    left_out: int
    """Slots that fell away."""

    @property
    def seconds(self) -> float:
        return self.frames / RATE

    @property
    def cut_frames(self) -> tuple[int, ...]:
        return tuple(segment.start_frame for segment in self.segments[1:])


class Grid:
    """Beats of the music from its first on, gone on with where they end."""

    def __init__(self, instants: tuple[float, ...], bpm: float) -> None:
        step = 60 / bpm
        first = instants[0] if instants else 0.0
        self._instants = [at - first for at in instants] or [0.0]
        self._step = step

    def at(self, beats: float) -> float:
        """Seconds of a place in beats."""
        whole = int(beats)
        return self._whole(whole) + (beats - whole) * (self._whole(whole + 1) - self._whole(whole))

    def nearest(self, seconds: float) -> float:
        """The whole beat next to an instant."""
        place = 0
        while self._whole(place + 1) <= seconds:
            place += 1
        early = seconds - self._whole(place) <= self._whole(place + 1) - seconds
        return float(place if early else place + 1)

    def until(self, seconds: float) -> list[float]:
        found = [0.0]
        while (at := self._whole(len(found))) < seconds:
            found.append(at)
        return found

    def _whole(self, place: int) -> float:
        if place < len(self._instants):
            return self._instants[place]
        return self._instants[-1] + (place - len(self._instants) + 1) * self._step


def make_timeline(
    template: Template,
    kinds: tuple[Source, ...],
    grid: Grid,
    size: tuple[int, int],
    words: dict[str, str],
) -> Timeline:
    """Plan the film. `kinds` are those of the inputs, in order; at least one."""
    numbered, left_out = _slots_for(template, len(kinds))
    numbered = [(number, _laid(template, number, slot, size)) for number, slot in numbered]
    ends = _ends(template, [slot for _, slot in numbered], grid)
    filled, unused, repeated = _filled(numbered, kinds, tall=size[1] > size[0])
    starts = [0, *ends[:-1]]
    leads = _leads(template, [slot for _, slot in numbered], starts, ends)
    segments = tuple(
        Segment(
            slot=slot,
            number=number,
            start_frame=starts[i],
            end_frame=ends[i],
            lead=leads[i],
            tail=leads[i + 1] if i + 1 < len(numbered) else 0,
            pieces=filled[i],
            transition=_transition(template, slot).kind if i and leads[i] else TransitionKind.CUT,
        )
        for i, (number, slot) in enumerate(numbered)
    )
    poster = _segment_of(segments, template, template.poster_slot)
    return Timeline(
        width=size[0],
        height=size[1],
        segments=segments,
        captions=_captions(template, segments, words),
        frames=ends[-1],
        poster_frame=(segments[poster].start_frame * 2 + segments[poster].end_frame * 3) // 5,
        beat_frames=tuple(round(at * RATE) for at in grid.until(ends[-1] / RATE)),
        unused=unused,
        repeated=repeated,
        left_out=left_out,
    )


def _laid(template: Template, number: int, slot: Slot, size: tuple[int, int]) -> Slot:
    """A slot's cells on this canvas: turned where it is upright and the template's is not.

    What lay side by side stands one above the other, so that prints do not become strips; where
    words have their place beside cells, all stays as it is.
    """
    lying, standing = template.aspect is Aspect.WIDE, template.aspect in _STANDING
    if not ((lying and size[1] > size[0]) or (standing and size[0] > size[1])):
        return slot
    if any(
        text.slot % len(template.slots) == number and text.x != _MIDDLE for text in template.texts
    ):
        return slot
    turned = [
        msgspec.structs.replace(cell, x=cell.y, y=cell.x, width=cell.height, height=cell.width)
        for cell in slot.cells
    ]
    return msgspec.structs.replace(slot, cells=tuple(turned))


def _needs(slot: Slot) -> int:
    return sum(cell.take is None for cell in slot.cells)


def _slots_for(template: Template, inputs: int) -> tuple[list[tuple[int, Slot]], int]:
    """The slots of this film with their numbers, and how many fell away."""
    slots = list(enumerate(template.slots))
    extend = template.extend
    if extend:
        again = slots[extend.first : extend.first + extend.count]
        at = extend.first + extend.count
        step = max(1, sum(_needs(slot) for _, slot in again))
        while (
            sum(_needs(slot) for _, slot in slots) + step <= inputs
            and len(slots) + len(again) <= extend.slots_max
        ):
            slots[at:at] = again
            at += len(again)
    full = len(slots)
    if template.missing is Missing.SHORTEN:
        while len(slots) > 1 and sum(_needs(slot) for _, slot in slots) > inputs:
            droppable = [i for i, (_, slot) in enumerate(slots) if slot.optional]
            if not droppable:
                break
            del slots[droppable[-1]]
    return slots, full - len(slots)


def _ends(template: Template, slots: list[Slot], grid: Grid) -> list[int]:
    """The frame at which each slot ends."""
    place, seconds = 0.0, 0.0
    ends: list[int] = []
    for slot in slots:
        if slot.beats is not None:
            place += slot.beats
            seconds = grid.at(place)
        else:
            seconds += slot.seconds or 0.0
            if template.snap:
                place = max(place + 1, grid.nearest(seconds))
                seconds = grid.at(place)
            else:
                place = grid.nearest(seconds)
        before = ends[-1] if ends else 0
        ends.append(max(before + _SLOT_FRAMES_MIN, round(seconds * RATE)))
    return ends


def _transition(template: Template, slot: Slot) -> Transition:
    return slot.transition or template.transition


def _leads(template: Template, slots: list[Slot], starts: list[int], ends: list[int]) -> list[int]:
    """Half the frames of the transition into each slot: no more than its neighbours bear."""
    leads: list[int] = []
    for i, slot in enumerate(slots):
        wished = _transition(template, slot)
        if i == 0 or wished.kind is TransitionKind.CUT:
            leads.append(0)
            continue
        shorter = min(ends[i] - starts[i], ends[i - 1] - starts[i - 1])
        leads.append(max(1, min(round(wished.seconds * RATE / 2), shorter * 2 // 5)))
    return leads


def _filled(
    numbered: list[tuple[int, Slot]], kinds: tuple[Source, ...], *, tall: bool
) -> tuple[list[tuple[Piece, ...]], tuple[int, ...], int]:
    uses = [0] * len(kinds)
    last_use = [-1] * len(kinds)
    filled: list[tuple[Piece, ...]] = []
    repeated, step, moved = 0, 0, 0
    for _, slot in numbered:
        pieces: list[Piece] = []
        for cell in slot.cells:
            if cell.take is not None:
                chosen = cell.take % len(kinds)
            else:
                chosen = _choose(slot.kind, kinds, uses, last_use)
                repeated += uses[chosen] > 0
            move = slot.move
            if move is Move.AUTO:
                moves = _MOVES_TALL if tall else _MOVES_WIDE
                move = moves[moved % len(moves)] if kinds[chosen] is Source.PHOTO else Move.NONE
                moved += 1
            pieces.append(
                Piece(cell=cell, source=chosen, kind=kinds[chosen], move=move, turn=uses[chosen])
            )
            uses[chosen] += 1
            last_use[chosen] = step
            step += 1
        filled.append(tuple(pieces))
    unused = tuple(i for i, count in enumerate(uses) if not count)
    return filled, unused, repeated


def _choose(kind: Kind, kinds: tuple[Source, ...], uses: list[int], last_use: list[int]) -> int:
    """The next input: unused before used, the right kind before the other, the oldest use first."""

    def order(i: int) -> tuple[int, bool, int, int]:
        wrong = kind is not Kind.ANY and kinds[i].value != kind.value
        return (uses[i], wrong, last_use[i], i)

    return min(range(len(kinds)), key=order)


def _segment_of(segments: tuple[Segment, ...], template: Template, number: int) -> int:
    """The segment of a slot of the template; the next one there is, if it fell away."""
    wanted = number % len(template.slots)
    for i, segment in enumerate(segments):
        if segment.number >= wanted:
            return i
    return len(segments) - 1


def _captions(
    template: Template, segments: tuple[Segment, ...], words: dict[str, str]
) -> tuple[Caption, ...]:
    captions: list[Caption] = []
    for text in template.texts:
        said = words.get(text.key, text.default)
        number = text.slot % len(template.slots)
        if not said.strip():
            continue
        first = _segment_of(segments, template, text.slot)
        if not any(segment.number == number for segment in segments):
            # Words that end the film end a shorter one too, unless its last slot has its own.
            last_number = segments[-1].number
            taken = any(one.slot % len(template.slots) == last_number for one in template.texts)
            if text.slot >= 0 or taken:
                continue
            first = len(segments) - 1
        last = min(len(segments), first + text.slots) - 1
        start = segments[first].start_frame + round(text.delay * RATE)
        end = segments[last].end_frame
        if first > 0 and segments[first].lead:
            start = max(start, segments[first].start_frame + segments[first].lead // 2)
        if last + 1 < len(segments):
            end -= segments[last].tail // 2
        if end - start >= _SLOT_FRAMES_MIN:
            captions.append(
                Caption(
                    text=text,
                    words=said.upper() if text.upper else said,
                    start_frame=start,
                    end_frame=end,
                )
            )
    return tuple(captions)


def even(value: float | Fraction) -> int:
    """The nearest even number, at least 2: chroma has half the resolution."""
    return max(2, round(value / 2) * 2)
