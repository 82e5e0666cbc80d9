"""What an attempt makes, batch by batch: pictures of a prompt, or the frames of a clip.

Every finished picture is held as PNG: as a file for the product, and in the checkpoint for the
attempt that goes on.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from PIL import Image, ImageOps

from gpu_runners.pipelines.genai.checkpoints import UnusableError
from gpu_runners.pipelines.genai.clips import Cut, shown_size, take_frames, write_film
from gpu_runners.pipelines.genai.parameters import (
    Order,
    clip_side,
    fitted,
    settle,
)
from gpu_runners.pipelines.genai.pictures import from_png, png, write_poster, write_preview
from gpu_runners.pipelines.genai.safety import Safety, refuse
from gpu_runners.pipelines.genai.smoothing import Smoothing
from gpu_runners.pipelines.pipeline import ProductFile, Work
from gpu_runners.pipelines.probe import SourceHeader
from gpu_runners.pipelines.probe_limits import ProbeLimits
from schema.scenes.genai import GenaiParameters, Kind

if TYPE_CHECKING:
    import torch

    from gpu_runners.pipelines.genai.denoising import Batch

_DONE = "done."


class Job(Protocol):
    """A unit is what the model makes at once: a batch of pictures, or one frame."""

    @property
    def order(self) -> Order: ...

    @property
    def units(self) -> int: ...

    @property
    def seeds(self) -> tuple[int, ...]: ...

    def batch(self, unit: int) -> "Batch":
        """What a unit is made from; units come in their order."""
        ...

    def take(self, unit: int, made: list[Image.Image]) -> None:
        """Take the pictures of a unit. Errors: PipelineError (MODERATION)."""
        ...

    def tensors(self) -> dict[str, "torch.Tensor"]:
        """What is done, for a checkpoint."""
        ...

    def resume(self, unit: int, tensors: dict[str, "torch.Tensor"]) -> dict[str, "torch.Tensor"]:
        """Take what is done before this unit from a checkpoint; returns what else is in it."""
        ...

    def restart(self) -> None:
        """Forget all that is done."""
        ...

    def store(self) -> tuple[tuple[ProductFile, ...], dict[str, Any]]:
        """The files of the product, the main one first, and what is to be told of them."""
        ...


class _Done:
    """Finished pictures by number, as PNG files in a folder."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(exist_ok=True)
        self._folder = folder
        self.paths: list[Path] = []

    def add(self, data: bytes) -> None:
        path = self._folder / f"{len(self.paths) + 1:05d}.png"
        path.write_bytes(data)
        self.paths.append(path)

    def clear(self) -> None:
        self.paths.clear()

    def tensors(self) -> dict[str, "torch.Tensor"]:
        import torch  # noqa: PLC0415 - late on purpose

        return {
            f"{_DONE}{at}": torch.from_numpy(np.fromfile(path, dtype=np.uint8))
            for at, path in enumerate(self.paths)
        }

    def resume(
        self, count: int, order: Order, tensors: dict[str, "torch.Tensor"]
    ) -> dict[str, "torch.Tensor"]:
        try:
            done = [tensors[f"{_DONE}{at}"].numpy().tobytes() for at in range(count)]
            sizes = {from_png(data).size for data in done}
        except (KeyError, ValueError) as error:
            raise UnusableError("the checkpoint is damaged") from error
        if sizes - {(order.width, order.height)}:
            raise UnusableError("the checkpoint is of another size")
        for data in done:
            self.add(data)
        return {name: one for name, one in tensors.items() if not name.startswith(_DONE)}


class PicturesJob:
    """Pictures of a prompt, with or without one to begin with."""

    def __init__(
        self, order: Order, directory: Path, safety: Safety, picture: Image.Image | None
    ) -> None:
        self.order = order
        self.seeds = tuple(order.seed + at for at in range(order.pictures))
        self.units = -(-order.pictures // order.batch)
        self._directory = directory
        self._safety = safety
        self._done = _Done(directory / "made")
        self._picture = _filling(picture, order) if picture is not None else None

    def batch(self, unit: int) -> "Batch":
        from gpu_runners.pipelines.genai.denoising import Batch  # noqa: PLC0415 - torch, late

        first = unit * self.order.batch
        return Batch(seeds=self.seeds[first : first + self.order.batch], picture=self._picture)

    def take(self, unit: int, made: list[Image.Image]) -> None:
        del unit
        for picture in made:
            refuse(self._safety.judge_picture(picture))
            self._done.add(png(picture))

    def tensors(self) -> dict[str, "torch.Tensor"]:
        return self._done.tensors()

    def resume(self, unit: int, tensors: dict[str, "torch.Tensor"]) -> dict[str, "torch.Tensor"]:
        return self._done.resume(unit * self.order.batch, self.order, tensors)

    def restart(self) -> None:
        self._done.clear()

    def store(self) -> tuple[tuple[ProductFile, ...], dict[str, Any]]:
        files: list[ProductFile] = []
        previews: list[ProductFile] = []
        for number, path in enumerate(self._done.paths, start=1):
            name = f"picture-{number}"
            files.append(ProductFile(name=f"{name}.png", path=path, content_type="image/png"))
            picture = from_png(path.read_bytes())
            previews.append(write_preview(picture, self._directory / f"{name}.webp"))
        first = from_png(self._done.paths[0].read_bytes())
        poster = write_poster(first, self._directory / "poster.jpg")
        return (*files, *previews, poster), {}


class ClipJob:
    """A clip, frame by frame; each one takes over from the one before."""

    def __init__(self, order: Order, directory: Path, safety: Safety, cut: Cut) -> None:
        self.order = order
        self.seeds = (order.seed,)
        self._directory = directory
        self._safety = safety
        self._cut = cut
        self._frames = take_frames(cut, directory / "frames")
        self.units = len(self._frames)
        self._done = _Done(directory / "made")
        self._smoothing = Smoothing(order.smoothing)

    @classmethod
    def begin(
        cls,
        wish: GenaiParameters,
        work: Work,
        source: Path,
        header: SourceHeader,
        *,
        limits: ProbeLimits,
        safety: Safety,
        own: int,
    ) -> "ClipJob":
        """Take the frames of a clip. Errors: InputError."""
        shown = shown_size(header, source, limits)
        side = clip_side(own)
        shape = fitted(*shown, side * side)
        order = settle(wish, Kind.CLIP, work.task_id, shape, lower_spec=work.lower_spec)
        cut = Cut(
            source=source,
            header=header,
            start_seconds=order.start_seconds,
            seconds=order.seconds,
            frame_rate=order.frame_rate,
            shown=shown,
            width=order.width,
            height=order.height,
        )
        return cls(order, work.directory, safety, cut)

    def batch(self, unit: int) -> "Batch":
        from gpu_runners.pipelines.genai.denoising import Batch  # noqa: PLC0415 - torch, late

        # The same noise for every frame: what it adds stands still.
        begun_from = self._smoothing.before(_pixels(self._frames[unit]))
        return Batch(seeds=self.seeds, picture=Image.fromarray(begun_from))

    def take(self, unit: int, made: list[Image.Image]) -> None:
        del unit
        frame = Image.fromarray(self._smoothing.after(np.asarray(made[0])))
        refuse(self._safety.judge_picture(frame))
        self._done.add(png(frame))

    def tensors(self) -> dict[str, "torch.Tensor"]:
        return self._done.tensors()

    def resume(self, unit: int, tensors: dict[str, "torch.Tensor"]) -> dict[str, "torch.Tensor"]:
        rest = self._done.resume(unit, self.order, tensors)
        if unit:
            self._smoothing.resume(_pixels(self._frames[unit - 1]), _pixels(self._done.paths[-1]))
        return rest

    def restart(self) -> None:
        self._done.clear()
        self._smoothing = Smoothing(self.order.smoothing)

    def store(self) -> tuple[tuple[ProductFile, ...], dict[str, Any]]:
        film = self._directory / "film.mp4"
        sound = write_film(self._cut, self._done.paths[0].parent, self.units, film)
        middle = from_png(self._done.paths[self.units // 2].read_bytes())
        poster = write_poster(middle, self._directory / "poster.jpg")
        claimed = self._cut.header.claimed_seconds
        seconds = self.units / self.order.frame_rate
        told = {
            "frames": self.units,
            "frame_rate": self.order.frame_rate,
            "seconds": round(seconds, 3),
            "start_seconds": self.order.start_seconds,
            "smoothing": self.order.smoothing,
            "sound": sound,
            "source_seconds": round(claimed, 3) if claimed is not None else None,
        }
        return (ProductFile(name="film.mp4", path=film, content_type="video/mp4"), poster), told


def _pixels(path: Path) -> np.ndarray[Any, np.dtype[np.uint8]]:
    return np.asarray(from_png(path.read_bytes()))


def _filling(picture: Image.Image, order: Order) -> Image.Image:
    """A picture in the size of the order: as large as fills it, what is over cut off."""
    return ImageOps.fit(picture, (order.width, order.height), Image.Resampling.LANCZOS)
