"""The scene `matting`: 1 to 500 pictures, animations or films in, their subjects out, cut free.

Two materials are worked on at a time, one thread each: while one waits for its file, the other has
the network. What can't be cut out fails alone and is told in the manifest; the task fails only if
nothing could be made.
"""

import hashlib
import time
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import cv2

from gpu_runners.device import cpu_seconds
from gpu_runners.pipelines.matting import manifest, trimming
from gpu_runners.pipelines.matting.canvas import CONTENT_TYPES, SUFFIXES, encoded, laid_out
from gpu_runners.pipelines.matting.cutting import LOWER_WORK_SIDE_MAX, WORK_SIDE_MAX, cut
from gpu_runners.pipelines.matting.manifest import Entry, Kind, Manifest, Status
from gpu_runners.pipelines.matting.parameters import wishes_of
from gpu_runners.pipelines.matting.pixels import Colours
from gpu_runners.pipelines.matting.saliency import Saliency
from gpu_runners.pipelines.matting.sheet import Sheet, tile
from gpu_runners.pipelines.matting.shelf import Shelf, file_stems
from gpu_runners.pipelines.matting.stills import Still, open_still, read
from gpu_runners.pipelines.pictures import upright_size
from gpu_runners.pipelines.pipeline import (
    InputError,
    InputReason,
    Pipeline,
    Product,
    ProductFile,
    Progress,
    Report,
    Work,
)
from gpu_runners.pipelines.probe_limits import ProbeLimits
from schema.scenes.matting import MattingParameters
from schema.words import Scene

if TYPE_CHECKING:
    from gpu_runners.pipelines.matting.moving import Moved

MODELS_DIRECTORY = Path(".cutlog/models")

_THREADS = 2
_BEGUN_MAX = _THREADS + 2
"""Materials begun and not yet handed over: finished ones lie in memory until their turn."""
_SHOWN_FAILURES = 3
_STEP_PERCENT = 0.5


class _Material(NamedTuple):
    name: str
    stem: str
    path: Path


class _Done(NamedTuple):
    """One material's end: what is told of it, and what was made."""

    entry: Entry
    content: bytes | Path | None = None
    content_type: str = ""
    tile: Colours | None = None


class Matting:
    """Cuts subjects out. The network is loaded once, for the life of the worker."""

    scene = Scene.MATTING.value

    def __init__(
        self, limits: ProbeLimits | None = None, models_directory: Path = MODELS_DIRECTORY
    ) -> None:
        self._limits = limits or ProbeLimits()
        self._saliency = Saliency(models_directory)
        self._saliency.warm()

    def run(self, work: Work, report: Report) -> Product:
        wishes = wishes_of(work)
        cv2.setNumThreads(1)
        task = _Task(work, report, wishes, self._limits, self._saliency)
        with ThreadPoolExecutor(_THREADS, thread_name_prefix="matting") as pool:
            try:
                return task.run(pool)
            finally:
                pool.shutdown(cancel_futures=True)


class _Task:
    """One task at work."""

    def __init__(
        self,
        work: Work,
        report: Report,
        wishes: MattingParameters,
        limits: ProbeLimits,
        saliency: Saliency,
    ) -> None:
        self._work = work
        self._report = report
        self._wishes = wishes
        self._limits = limits
        self._saliency = saliency
        self._side_max = LOWER_WORK_SIDE_MAX if work.lower_spec else WORK_SIDE_MAX
        self._shelf = Shelf(work.directory, len(work.inputs))
        self._sheet = Sheet(wishes.colour, [])
        self._entries: list[Entry] = []
        self._began = time.monotonic()
        self._told_percent = -_STEP_PERCENT

    def run(self, pool: ThreadPoolExecutor) -> Product:
        before = cpu_seconds()
        self._tell(0.0)
        inputs = self._work.inputs
        pending: deque[Future[_Done]] = deque()
        for (name, path), stem in zip(inputs.items(), file_stems(inputs), strict=True):
            material = _Material(name, stem, path)
            still = self._open(material)
            if isinstance(still, _Done) or (still is not None and not still.moves):
                pending.append(pool.submit(self._picture, material, still))
            else:
                while pending:
                    self._take(pending.popleft().result())
                self._take(self._moving(material, still, pool))
            while len(pending) >= _BEGUN_MAX:
                self._take(pending.popleft().result())
        while pending:
            self._take(pending.popleft().result())
        return self._product(before)

    def _open(self, material: _Material) -> Still | _Done | None:
        try:
            return open_still(material.path, self._limits)
        except InputError as error:
            return _Done(_refusal(material, error, 0.0))

    def _picture(self, material: _Material, still: Still | _Done) -> _Done:
        """One picture from file to file; runs in a thread of the pool."""
        if isinstance(still, _Done):
            return still
        began = time.thread_time()
        wishes = self._wishes
        try:
            with still.image:
                stored = still.image.size  # of a large one less is read
                picture = read(still)
                source = upright_size(still.image, stored)
            mask = self._saliency.look(picture.colours)
            made = cut(picture, mask, refined=wishes.refine, side_max=self._side_max)
            laid = laid_out(made, wishes)
            content = encoded(laid, wishes)
        except InputError as error:
            return _Done(_refusal(material, error, time.thread_time() - began, Kind.PICTURE))
        small = tile(laid, wishes.colour) if self._sheet.wants_more else None
        height, width = laid.alpha.shape
        entry = Entry(
            name=material.name,
            status=Status.MADE,
            seconds=round(time.thread_time() - began, 3),
            kind=Kind.PICTURE,
            file=material.stem + SUFFIXES[wishes.format],
            size=len(content),
            sha256=hashlib.sha256(content).hexdigest(),
            width=width,
            height=height,
            source_width=source[0],
            source_height=source[1],
            refined=made.refined,
            covered=round(float((laid.alpha > 0).mean()), 4),
        )
        return _Done(entry, content, CONTENT_TYPES[wishes.format], small)

    def _moving(self, material: _Material, still: Still | None, pool: ThreadPoolExecutor) -> _Done:
        """An animation, or what may be a film; its frames keep both threads busy."""
        # Pictures need nothing of what films do, and there are many more tasks of these.
        from gpu_runners.pipelines.matting import moving  # noqa: PLC0415

        began = time.monotonic()
        kind = None if still is None else Kind.ANIMATION
        cutter = moving.Cutter(self._saliency, pool, self._wishes, self._side_max)
        half = self._work.directory / f"{material.stem}.part"
        try:
            if still is not None:
                with still.image:
                    moved = moving.cut_animation(still, cutter, self._wishes, half, self._tell_part)
                    source = upright_size(still.image)
            else:
                lower = self._work.lower_spec
                side = moving.LOWER_SHORT_SIDE_MAX if lower else moving.SHORT_SIDE_MAX
                film = moving.open_film(material.path, self._limits, side)
                kind, source = Kind.FILM, (film.header.width, film.header.height)
                moved = moving.cut_film(film, cutter, self._wishes, half, self._tell_part)
        except InputError as error:
            half.unlink(missing_ok=True)
            return _Done(_refusal(material, error, time.monotonic() - began, kind))
        return _Done(
            _moved_entry(material, moved, kind, source, time.monotonic() - began),
            moved.path,
            moved.content_type,
            tile(cutter.first, self._wishes.colour) if cutter.first is not None else None,
        )

    def _take(self, done: _Done) -> None:
        """Hand one material's end over; they come in the order of the materials."""
        if done.content is not None and done.entry.file is not None:
            self._shelf.put(done.entry.file, done.content, done.content_type)
        if done.tile is not None and self._sheet.wants_more:
            self._sheet.tiles.append(done.tile)
        self._entries.append(done.entry)
        if len(self._entries) % trimming.EVERY_PICTURES == 0:
            trimming.trim()
        self._tell_part(0.0)

    def _tell_part(self, part: float) -> None:
        """So much of the next material is done."""
        self._tell(100.0 * (len(self._entries) + part) / len(self._work.inputs))

    def _tell(self, percent: float) -> None:
        if percent < self._told_percent + _STEP_PERCENT and percent < 100.0:  # noqa: PLR2004
            return
        self._told_percent = percent
        elapsed = time.monotonic() - self._began
        left = elapsed * (100.0 - percent) / percent if percent else None
        self._report(
            Progress(
                percent=percent,
                phase="cutting",
                eta_seconds=None if left is None else round(left, 2),
            )
        )

    def _product(self, before: float) -> Product:
        made = [entry for entry in self._entries if entry.status is Status.MADE]
        if not made:
            raise _nothing_made(self._entries)
        archive = self._shelf.archive_path
        told = self._work.directory / "manifest.json"
        manifest.write(
            Manifest(
                made=len(made),
                failed=len(self._entries) - len(made),
                archive=archive.name if archive else None,
                parameters=self._wishes,
                pictures=tuple(self._entries),
            ),
            told,
        )
        poster = self._work.directory / "poster.jpg"
        self._sheet.write(poster)
        files = (
            *self._shelf.close(),
            ProductFile(name=told.name, path=told, content_type="application/json"),
            ProductFile(name=poster.name, path=poster, content_type="image/jpeg"),
        )
        facts = {
            "pictures": len(self._entries),
            "made": len(made),
            "failed": len(self._entries) - len(made),
            "refined": sum(entry.refined for entry in made),
            "bytes": sum(entry.size for entry in made),
            "format": self._wishes.format.value,
            "archive": archive.name if archive else None,
            "lower_spec": self._work.lower_spec,
        }
        card_seconds = round(cpu_seconds() - before, 3)
        return Product(files=files, facts=facts, card_seconds=card_seconds)


def _moved_entry(
    material: _Material, moved: "Moved", kind: Kind | None, source: tuple[int, int], seconds: float
) -> Entry:
    ending = ".webp" if kind is Kind.ANIMATION else ".webm"
    with moved.path.open("rb") as file:
        sha256 = hashlib.file_digest(file, "sha256").hexdigest()
    return Entry(
        name=material.name,
        status=Status.MADE,
        seconds=round(seconds, 3),
        kind=kind,
        file=material.stem + ending,
        size=moved.path.stat().st_size,
        sha256=sha256,
        width=moved.width,
        height=moved.height,
        source_width=source[0],
        source_height=source[1],
        frames=moved.frames,
        refined=moved.refined,
        covered=round(moved.covered, 4),
        notes=moved.notes,
    )


def _refusal(
    material: _Material, error: InputError, seconds: float, kind: Kind | None = None
) -> Entry:
    return Entry(
        name=material.name,
        status=Status.FAILED,
        seconds=round(seconds, 3),
        kind=kind,
        reason=error.reason,
        message=error.message,
    )


def _nothing_made(entries: list[Entry]) -> InputError:
    """All failed: so does the task, for the reason of the first."""
    told = "; ".join(f"{entry.name}: {entry.message}" for entry in entries[:_SHOWN_FAILURES])
    more = len(entries) - _SHOWN_FAILURES
    if len(entries) == 1:
        told = entries[0].message or ""
    elif more > 0:
        told += f"; and {more} more"
    return InputError(InputReason(entries[0].reason or InputReason.INPUTS), told)


_: type[Pipeline] = Matting
