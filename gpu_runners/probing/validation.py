"""The rules: which files are taken, and which reason of the closed set each other one is told.

In this order: what the first and last bytes say that it is, what its header claims, what can really
be decoded. Each step is made only if the one before was passed, so that a bomb is judged by its
fuse. What it is called plays no part.
"""

import mmap
from pathlib import Path

from gpu_runners.pipelines.pipeline import InputError, InputReason
from gpu_runners.pipelines.signatures import (
    FILM,
    PICTURES,
    UNSUPPORTED,
    instead_of,
    is_drawing,
    is_text,
    kinds_of,
    names_others,
    second_identity,
    stranger_of,
)
from gpu_runners.probing import validation_films, validation_pictures
from gpu_runners.probing.limits import MaterialLimits
from gpu_runners.probing.verdicts import Asked, RefusedError
from schema.commands import MediaFacts
from schema.refusals import MaterialRefusal
from schema.words import MediaKind

_HEADER = "The file is damaged: what it begins with can't be read."
_START_BYTES = 4096
_END_BYTES = 65_557
"""The last record of a ZIP archive lies within these."""
_SCANNED_BYTES_MAX = 256 << 20
_HIDDEN = ((b"7z\xbc\xaf\x27\x1c", "a 7z archive"), (b"Rar!\x1a\x07", "a RAR archive"))
_DECLARED = {"video": MediaKind.VIDEO, "image": MediaKind.PICTURE, "audio": MediaKind.AUDIO}
_WORDS = {
    MediaKind.VIDEO: "a video",
    MediaKind.PICTURE: "a picture",
    MediaKind.AUDIO: "sound without pictures",
}
_REASONS = {
    InputReason.EMPTY: MaterialRefusal.EMPTY,
    InputReason.NOT_MEDIA: MaterialRefusal.NOT_MEDIA,
    InputReason.NO_VIDEO: MaterialRefusal.NO_STREAMS,
    InputReason.TRUNCATED: MaterialRefusal.TRUNCATED,
    InputReason.DAMAGED: MaterialRefusal.DAMAGED,
    InputReason.TOO_SHORT: MaterialRefusal.TOO_SHORT,
    InputReason.TOO_LONG: MaterialRefusal.MATERIAL_TOO_LONG,
    InputReason.TOO_LARGE: MaterialRefusal.PIXELS_TOO_MANY,
    InputReason.UNSUPPORTED: MaterialRefusal.CODEC_UNSUPPORTED,
}


def validate(asked: Asked) -> MediaFacts:
    """What the file is, counted and measured. Raises RefusedError; MemoryError when short of it."""
    path = Path(asked.path)
    try:
        kind = _kind(path, asked.limits)
        if kind in PICTURES:
            facts = validation_pictures.examine(path, kind, asked.limits)
        else:
            facts = validation_films.examine(path, kind, asked.limits)
    except InputError as error:
        if error.reason == InputReason.NOT_MEDIA:  # its first bytes say that it is
            raise RefusedError(MaterialRefusal.DAMAGED, _HEADER) from error
        raise RefusedError(
            _REASONS[InputReason(error.reason or InputReason.DAMAGED)], error.message
        ) from error
    _hold_against(facts, asked)
    return facts


def _kind(path: Path, limits: MaterialLimits) -> str:
    """The one format of its bytes. Raises RefusedError."""
    size = path.stat().st_size
    if size == 0:
        raise RefusedError(MaterialRefusal.EMPTY, "The file is empty (0 bytes).")
    if size > limits.bytes_max:
        raise RefusedError(
            MaterialRefusal.MATERIAL_TOO_LARGE,
            f"The file has {size} bytes; at most {limits.bytes_max} are taken.",
        )
    with path.open("rb") as file:
        start = file.read(_START_BYTES)
        file.seek(max(0, size - _END_BYTES))
        end = file.read()
    _refuse_strangers(start)
    kinds = kinds_of(start)
    other = second_identity(start, end)
    if len(kinds) > 1 or (kinds and other):
        both = [*kinds, *([other] if other else [])]
        raise RefusedError(
            MaterialRefusal.TWO_IDENTITIES, f"The file is two things at once: {' and '.join(both)}."
        )
    if kinds and kinds[0] in PICTURES:
        _refuse_hidden(path, size)
    if kinds and kinds[0] in UNSUPPORTED:
        raise RefusedError(
            MaterialRefusal.CONTAINER_UNSUPPORTED,
            f"The file is a {UNSUPPORTED[kinds[0]]}, which is not taken. "
            f"{instead_of(kinds[0])}".strip(),
        )
    if not kinds or (kinds[0] not in FILM and kinds[0] not in PICTURES):
        raise RefusedError(
            MaterialRefusal.NOT_MEDIA, "The file is not of any kind that can be shown or heard."
        )
    return kinds[0]


def _refuse_strangers(start: bytes) -> None:
    """Text, lists, archives, programs."""
    if names_others(start):
        raise RefusedError(
            MaterialRefusal.NAMES_OTHERS,
            "The file is a list that names other files or hosts instead of being the film.",
        )
    if is_drawing(start):
        raise RefusedError(
            MaterialRefusal.CONTAINER_UNSUPPORTED, "The file is an SVG drawing, which is not taken."
        )
    what = stranger_of(start) or ("text" if is_text(start) and not _is_amr(start) else None)
    if what is not None:
        raise RefusedError(MaterialRefusal.NOT_MEDIA, f"The file is {what}.")


def _is_amr(start: bytes) -> bool:
    """A few seconds of it may well be text."""
    return start.startswith(b"#!AMR")


def _refuse_hidden(path: Path, size: int) -> None:
    """An archive behind a picture, where readers of archives look for one."""
    if size > _SCANNED_BYTES_MAX:
        return
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        found = [what for mark, what in _HIDDEN if content.find(mark) >= 0]
    if found:
        raise RefusedError(
            MaterialRefusal.TWO_IDENTITIES, f"The file is a picture and {found[0]} at once."
        )


def _hold_against(facts: MediaFacts, asked: Asked) -> None:
    """What was declared, and how many bytes a second of it takes."""
    family, _, form = asked.content_type.lower().partition("/")
    declared = _DECLARED.get(family)
    moves = facts.animated and declared is MediaKind.VIDEO  # a GIF, to many, is a video
    if declared not in (None, facts.kind) and form and not moves:
        raise RefusedError(
            MaterialRefusal.OTHER_KIND,
            f"It was declared as {family}, but the file is {_WORDS[facts.kind]}.",
        )
    seconds = facts.duration_ms / 1000
    if asked.seconds_max and seconds >= asked.seconds_max + 1:  # what is left of the last second
        raise RefusedError(
            MaterialRefusal.MATERIAL_TOO_LONG,
            f"It is {seconds:.1f} s long; {asked.seconds_max:g} s were declared.",
        )
    if facts.bit_rate > asked.limits.bit_rate_max:
        raise RefusedError(
            MaterialRefusal.BIT_RATE_TOO_HIGH,
            f"A second of it has {facts.bit_rate} bits; {asked.limits.bit_rate_max} are taken.",
        )
