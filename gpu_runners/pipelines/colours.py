"""Colours of pictures as a screen takes them: eight bits, sRGB, by a profile or by numbers.

A profile (ICC) goes before the numbers (primaries and transfer of ITU-T H.273, that HEIC, AVIF and
PNG may hold). Of numbers a profile is made, so that one library does all the turning. What is
brighter than paper (PQ, HLG) is bent down at the end of the scale instead of being cut off.
"""

import functools
import io
import struct
import threading
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageCms

_SRGB: Final = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB"))
_turning = threading.Lock()
"""The library's profiles are not made for two threads at once."""
_WIDE_MODES: Final = frozenset({"I;16", "I;16L", "I;16B", "I;16N"})
_OPAQUE: Final = [255] * 255 + [0]
_PROFILED: Final = frozenset({"RGB", "RGBA", "CMYK", "L"})

_Curve = npt.NDArray[np.float64]
_BT709, _UNKNOWN, _GAMMA_22, _LINEAR, _BT2020, _P3 = 1, 2, 4, 8, 9, 12
_PQ, _HLG = 16, 18
_PRIMARIES: Final = {
    _BT709: ((0.640, 0.330), (0.300, 0.600), (0.150, 0.060)),
    _BT2020: ((0.708, 0.292), (0.170, 0.797), (0.131, 0.046)),
    _P3: ((0.680, 0.320), (0.265, 0.690), (0.150, 0.060)),
}
_D65: Final = (0.3127, 0.3290)
_D50: Final = (0.9642, 1.0, 0.8249)
_BRADFORD: Final = np.array(
    [[0.8951, 0.2664, -0.1614], [-0.7502, 1.7135, 0.0367], [0.0389, -0.0685, 1.0296]]
)
_STEPS: Final = 1024
_PAPER_NITS: Final = 203.0
_BRIGHTEST_NITS: Final = 1000.0
_KNEE: Final = 0.7
"""From this part of paper white on, what is brighter is squeezed into the rest."""
_NCLX, _CICP = b"colrnclx", b"cICP"
_HEAD_BYTES: Final = 65_536


def eight_bit(image: Image.Image) -> Image.Image:
    """In L, RGB, RGBA or CMYK with eight bits; wider greys by their upper ones."""
    if image.mode in _WIDE_MODES:
        return Image.fromarray((np.asarray(image).astype(np.uint16) >> 8).astype(np.uint8))
    if image.mode in ("I", "F"):
        levels = np.asarray(image, dtype=np.float64)
        most = 65_535.0 if levels.max(initial=0) > 255 else 255.0  # noqa: PLR2004 - eight bits
        return Image.fromarray(np.clip(levels / most * 255, 0, 255).astype(np.uint8))
    if image.has_transparency_data:
        return image if image.mode == "RGBA" else image.convert("RGBA")
    return image if image.mode in ("RGB", "CMYK", "L") else image.convert("RGB")


def is_opaque(image: Image.Image) -> bool:
    """Whether nothing can be seen through it, whatever its mode could hold."""
    return image.mode != "RGBA" or not image.getchannel("A").point(_OPAQUE).getbbox()


def in_srgb(image: Image.Image, profile: object) -> Image.Image:
    """A picture in RGB as a screen takes it; without its alpha, if it has one."""
    if not (isinstance(profile, bytes) and profile and image.mode in _PROFILED):
        return image.convert("RGB")
    flat = image.convert("RGB") if image.mode == "RGBA" else image
    turned: Image.Image | None = None
    try:
        with _turning:
            source = ImageCms.ImageCmsProfile(io.BytesIO(profile))
            if "srgb" not in ImageCms.getProfileDescription(source).lower():
                turned = ImageCms.profileToProfile(flat, source, _SRGB, outputMode="RGB")
    except (ImageCms.PyCMSError, OSError, ValueError):
        turned = None  # a profile that makes no sense is worth less than none
    return turned or flat.convert("RGB")


def profile_of(image: Image.Image, path: Path | None = None) -> bytes | None:
    """The profile of a picture, or one made of its numbers; None: it is sRGB, or doesn't say.

    path: where it was read from, for kinds whose reader keeps the numbers to itself.
    """
    own = image.info.get("icc_profile")
    if isinstance(own, bytes) and own:
        return own
    told = image.info.get("nclx_profile")
    if isinstance(told, dict):
        return made_profile(
            int(told.get("color_primaries", _UNKNOWN)),
            int(told.get("transfer_characteristics", _UNKNOWN)),
        )
    numbers = _numbers(path, image.format) if path is not None else None
    return made_profile(*numbers) if numbers else None


def _numbers(path: Path, kind: str | None) -> tuple[int, int] | None:
    """Primaries and transfer as the file has them, where Pillow doesn't tell."""
    mark, form = {"AVIF": (_NCLX, ">HH"), "PNG": (_CICP, ">BB")}.get(kind or "", (b"", ""))
    if not mark:
        return None
    with path.open("rb") as file:
        head = file.read(_HEAD_BYTES)
    at = head.find(mark)
    if at < 0 or at + len(mark) + struct.calcsize(form) > len(head):
        return None
    primaries, transfer = struct.unpack_from(form, head, at + len(mark))
    return int(primaries), int(transfer)


@functools.lru_cache(maxsize=16)
def made_profile(primaries: int, transfer: int) -> bytes | None:
    """A profile of numbers; None: they mean sRGB, or nothing that is known."""
    wide = primaries in (_BT2020, _P3)
    if not wide and transfer not in (_GAMMA_22, _LINEAR, _PQ, _HLG):
        return None
    # Of the photo's own light: what a film's curve (BT.709) means on a screen is sRGB's.
    to_xyz = _to_xyz(_PRIMARIES.get(primaries, _PRIMARIES[_BT709]))
    curve = np.rint(_curve(transfer) * 0xFFFF).astype(">u2").tobytes()
    told = b"curv" + struct.pack(">II", 0, _STEPS) + curve
    name = f"H.273 {primaries}/{transfer}".encode() + b"\0"
    tags = {
        b"desc": b"desc" + struct.pack(">II", 0, len(name)) + name + bytes(78),
        b"cprt": b"text" + bytes(4) + b"none\0",
        b"wtpt": _xyz(_D50),
        **{kind: _xyz(to_xyz[:, n]) for n, kind in enumerate((b"rXYZ", b"gXYZ", b"bXYZ"))},
        **dict.fromkeys((b"rTRC", b"gTRC", b"bTRC"), told),
    }
    return _file_of(tags)


def _file_of(tags: dict[bytes, bytes]) -> bytes:
    """A profile for screens, version 2."""
    table, body = b"", b""
    start = 128 + 4 + 12 * len(tags)
    for kind, content in tags.items():
        padded = content + bytes(-len(content) % 4)
        table += kind + struct.pack(">II", start + len(body), len(content))
        body += padded
    whole = struct.pack(">I", len(tags)) + table + body
    head = struct.pack(">I4sI4s4s4s", 128 + len(whole), bytes(4), 0x02400000, b"mntr", b"RGB ",
                       b"XYZ ")  # fmt: skip
    head += bytes(12) + b"acsp" + bytes(28) + _xyz(_D50)[8:]
    return head.ljust(128, b"\0") + whole


def _xyz(values: tuple[float, ...] | _Curve) -> bytes:
    return b"XYZ " + bytes(4) + struct.pack(">3i", *(round(float(v) * 65536) for v in values))


def _to_xyz(primaries: tuple[tuple[float, float], ...]) -> _Curve:
    """Red, green and blue in the profile's space, whose white is D50."""

    def lit(x: float, y: float) -> list[float]:
        return [x / y, 1.0, (1 - x - y) / y]

    columns = np.array([lit(*one) for one in primaries]).T
    white = np.array(lit(*_D65))
    own = columns * np.linalg.solve(columns, white)
    cones = (_BRADFORD @ np.array(_D50)) / (_BRADFORD @ white)
    adapted: _Curve = np.linalg.inv(_BRADFORD) @ np.diag(cones) @ _BRADFORD @ own
    return adapted


def _curve(transfer: int) -> _Curve:
    """Light (1 is paper white) at even steps of the signal."""
    signal = np.linspace(0, 1, _STEPS)
    if transfer == _LINEAR:
        return signal
    if transfer == _GAMMA_22:
        return np.asarray(signal**2.2)
    if transfer == _PQ:
        root = signal ** (32 / 2523)
        light = np.maximum(root - 3424 / 4096, 0) / (2413 / 128 - 2392 / 128 * root)
        return _bent(10_000 * light ** (8192 / 1305) / _PAPER_NITS)
    if transfer == _HLG:
        scene = np.where(
            signal <= 0.5,  # noqa: PLR2004 - as BT.2100 has it
            signal**2 / 3,
            (np.exp((signal - 0.55991073) / 0.17883277) + 0.28466892) / 12,
        )
        return _bent(_BRIGHTEST_NITS * scene**1.2 / _PAPER_NITS)
    low = signal <= 0.04045  # noqa: PLR2004 - as IEC 61966-2-1 has it
    return np.where(low, signal / 12.92, ((signal + 0.055) / 1.055) ** 2.4)


def _bent(light: _Curve) -> _Curve:
    """What is brighter than the knee, squeezed below 1."""
    over = np.maximum(light - _KNEE, 0) / (1 - _KNEE)
    most = (_BRIGHTEST_NITS / _PAPER_NITS - _KNEE) / (1 - _KNEE)
    squeezed = _KNEE + (1 - _KNEE) * (1 - np.exp(-over)) / (1 - np.exp(-most))
    return np.minimum(np.where(light <= _KNEE, light, squeezed), 1.0)
