"""The reader of HEIC for Pillow: the picture that is meant, decoded, and nothing else of the file.

It stands on the decoder of `pi_heif` alone. That package's own reader lists every picture of the
file and copies out its notes, and bytes that are not as they should be crash it there; nobody here
wants notes, and the decoder turns the picture without them.
"""

import functools
import importlib
from pathlib import Path
from typing import Any, Final, NamedTuple

from PIL import Image, ImageFile

_FORMAT: Final = "HEIF"
_BRANDS: Final = frozenset(
    {b"heic", b"heix", b"heim", b"heis", b"hevc", b"hevx", b"hevm", b"hevs", b"mif1", b"msf1"}
)
_PROFILES: Final = ("rICC", "prof")


class Decoded(NamedTuple):
    """What a picture turned out to be."""

    width: int
    """As people see it, like the height."""
    height: int
    has_alpha: bool


class HeicFile(ImageFile.ImageFile):
    """A HEIC file in Pillow's terms. It has one picture, upright, in eight bits a colour."""

    format = _FORMAT
    format_description = "HEIC"
    _picture: Any = None

    def _open(self) -> None:
        if self.fp is None:
            raise ValueError("the file is closed")
        self._picture = _meant(self.fp.read())
        self._take_size()
        profile = self._picture.color_profile or {}
        if profile.get("type") in _PROFILES:
            self.info["icc_profile"] = profile["data"]
        elif profile:
            self.info["nclx_profile"] = profile["data"]
        self.tile = []

    def _take_size(self) -> None:
        size, self._mode = self._picture.size_mode
        self._size = (int(size[0]), int(size[1]))

    def load(self) -> Any:  # noqa: ANN401 - Pillow's own, of a private type
        """Decode it, the first time."""
        if self._picture is not None:
            data = self._picture.data
            self._take_size()
            self.load_prepare()
            self.frombytes(data, "raw", (self._mode, self._picture.stride))
            self._picture = None
        return super().load()

    def decode(self) -> Decoded:
        """Decode it and keep nothing: needs less memory than `load`. Raises what readers raise."""
        picture, self._picture = self._picture, None
        if not len(picture.data):
            raise ValueError("no picture came of it")
        (width, height), mode = picture.size_mode
        return Decoded(int(width), int(height), mode.partition(";")[0][-1] in "Aa")


def why_not(path: Path) -> Exception | None:
    """What the decoder says of a file that can't be opened; Pillow keeps it to itself."""
    try:
        _meant(path.read_bytes())
    except (OSError, ValueError, SyntaxError, RuntimeError, EOFError, IndexError) as error:
        return error
    return None


@functools.cache
def load_reader() -> None:
    """Make it known to Pillow, once in a process."""
    _decoder()
    Image.register_open(_FORMAT, HeicFile, _is_heic)


@functools.cache
def _decoder() -> Any:  # noqa: ANN401 - it ships no types
    return importlib.import_module("_pi_heif")


def _is_heic(start: bytes) -> bool:
    return start[4:8] == b"ftyp" and start[8:12] in _BRANDS


def _meant(content: bytes) -> Any:  # noqa: ANN401 - it ships no types
    """The picture that a file shows; of all pictures only the headers are read.

    0 threads: one tile after the other, in one thread of the decoder's own, which it insists on.
    """
    eight_bit, bgr, no_stride, sixteen_bit, limits_off = True, False, False, True, False
    found = [
        picture
        for picture in _decoder().load_file(
            content, 0, eight_bit, bgr, no_stride, sixteen_bit, "", limits_off
        )
        if picture is not None
    ]
    return next((picture for picture in found if picture.primary), found[0])
