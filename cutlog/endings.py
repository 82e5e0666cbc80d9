"""What a file is announced as, by the end of its name; the same on every machine.

The prober judges by the bytes. A wrong announcement is refused, so what may be a film or sound
alone, or is not known, is announced as nothing in particular.
"""

from pathlib import Path
from typing import Final

ANYTHING: Final = "application/octet-stream"
_TYPES: Final = {
    "avif": "image/avif",
    "bmp": "image/bmp",
    "gif": "image/gif",
    "heic": "image/heic",
    "heics": "image/heic-sequence",
    "heif": "image/heif",
    "heifs": "image/heif-sequence",
    "hif": "image/heif",
    "jfif": "image/jpeg",
    "jpe": "image/jpeg",
    "jpeg": "image/jpeg",
    "jpg": "image/jpeg",
    "png": "image/png",
    "tif": "image/tiff",
    "tiff": "image/tiff",
    "webp": "image/webp",
    "avi": "video/x-msvideo",
    "m2ts": "video/mp2t",
    "m4v": "video/x-m4v",
    "mkv": "video/x-matroska",
    "mov": "video/quicktime",
    "mp4": "video/mp4",
    "mts": "video/mp2t",
    "webm": "video/webm",
    "wmv": "video/x-ms-wmv",
    "aac": "audio/aac",
    "amr": "audio/amr",
    "flac": "audio/flac",
    "m4a": "audio/mp4",
    "mp3": "audio/mpeg",
    "wav": "audio/wav",
}


def content_type_of(path: Path) -> str:
    """By the last ending of its name, in any case."""
    return _TYPES.get(path.suffix.removeprefix(".").lower(), ANYTHING)
