"""Pictures of noise as PNG files, made without a library: valid, as large as wanted, all different.

Noise cannot be compressed, so it isn't: a picture of 5000 x 4000 is a file of 60 MB.
"""

import random
import struct
import zlib
from typing import Final
from uuid import uuid4

_SIGNATURE: Final = b"\x89PNG\r\n\x1a\n"
_RGB_BYTES: Final = 3


def noise_png(width: int = 64, height: int = 64, seed: int | None = None) -> bytes:
    """A picture of noise; without seed no other has ever been like it."""
    noise = random.Random(uuid4().int if seed is None else seed)
    packing = zlib.compressobj(0)
    rows = [packing.compress(b"\x00" + noise.randbytes(width * _RGB_BYTES)) for _ in range(height)]
    rows.append(packing.flush())
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"".join(
        (
            _SIGNATURE,
            _chunk(b"IHDR", header),
            _chunk(b"IDAT", b"".join(rows)),
            _chunk(b"IEND", b""),
        )
    )


def _chunk(kind: bytes, content: bytes) -> bytes:
    return (
        struct.pack(">I", len(content))
        + kind
        + content
        + struct.pack(">I", zlib.crc32(kind + content))
    )
