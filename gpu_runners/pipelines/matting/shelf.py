"""Where cut-outs go: files of the result, or one archive when there are many of them.

A task's end names each of its files in one message, and messages are short: hundreds of files are
handed over as one ZIP, stored without compression (the pictures are compressed already), and the
same pictures give the same bytes.
"""

import re
import shutil
import zipfile
from collections.abc import Iterable
from pathlib import Path

from gpu_runners.pipelines.pipeline import ProductFile

LOOSE_FILES_MAX = 40
ARCHIVE = "cutouts.zip"

_PLAIN_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_OLDEST = (1980, 1, 1, 0, 0, 0)
_ORDINARY_FILE = 0o644 << 16
_TAKEN = frozenset({"manifest", "poster", "cutouts"})


class Shelf:
    """Takes cut-outs in the order of their materials."""

    def __init__(self, directory: Path, materials: int) -> None:
        self._directory = directory
        self._files: list[ProductFile] = []
        self._archive: zipfile.ZipFile | None = None
        self.archive_path: Path | None = None
        if materials > LOOSE_FILES_MAX:
            self.archive_path = directory / ARCHIVE
            self._archive = zipfile.ZipFile(self.archive_path, "w", zipfile.ZIP_STORED)

    def put(self, name: str, content: bytes | Path, content_type: str) -> None:
        """Keep one cut-out; a path is moved, or copied into the archive and removed."""
        if self._archive is None:
            path = self._directory / name
            if isinstance(content, bytes):
                path.write_bytes(content)
            else:
                content.rename(path)
            self._files.append(ProductFile(name=name, path=path, content_type=content_type))
            return
        member = zipfile.ZipInfo(name, _OLDEST)
        member.external_attr = _ORDINARY_FILE
        if isinstance(content, bytes):
            self._archive.writestr(member, content)
            return
        with content.open("rb") as source, self._archive.open(member, "w") as target:
            shutil.copyfileobj(source, target, 1 << 20)
        content.unlink()

    def close(self) -> tuple[ProductFile, ...]:
        """The files that hold the cut-outs."""
        if self._archive is None or self.archive_path is None:
            return tuple(self._files)
        self._archive.close()
        path = self.archive_path
        return (ProductFile(name=path.name, path=path, content_type="application/zip"),)


def file_stems(materials: Iterable[str]) -> list[str]:
    """The names of the cut-outs without their endings: the materials' own, where harmless."""
    stems: list[str] = []
    taken = {*_TAKEN}
    for index, material in enumerate(materials):
        stem = material if _PLAIN_NAME.fullmatch(material) else f"picture-{index + 1:03d}"
        while stem.lower() in taken:
            stem += "-2"
        taken.add(stem.lower())
        stems.append(stem)
    return stems
