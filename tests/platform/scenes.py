"""What the scenes make of a few files and words, made once for all tests that look at it."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np
from PIL import Image

from cutlog.client import Client
from tests.platform.people import Json
from tests.support.clips import odd, samples

_SMALL_CLIP: Final = ("-vf", "scale=640:360")
_SHORT_CLIP: Final = ("-t", "0.5", "-vf", "scale=160:-2", "-r", "12", "-an")


class Made(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a task that has succeeded."""

    task_id: str
    inputs: tuple[str, ...]
    """Materials."""
    files: dict[str, Path]
    """Fetched, by name."""
    facts: Json


class Works:
    """Results by name; each is made when the first test asks for it."""

    def __init__(self, client: Client, directory: Path) -> None:
        self.client = client
        self._directory = directory
        self._made: dict[str, Made] = {}
        self._recipes: dict[str, Callable[[], tuple[str, Json]]] = {
            "autocut": self._autocut,
            "postcard": self._postcard,
            "fox": lambda: ("genai", self._words("fox")),
            "boat": lambda: ("genai", self._words("boat")),
            "stylised": self._stylised,
            "cut-outs": lambda: ("matting", self._cut_outs(10, 200)),
            "cut-outs in webp": lambda: ("matting", self._cut_outs(40, format="webp")),
            "cut-outs on white": lambda: ("matting", self._cut_outs(70, format="jpeg")),
            "moving cut-out": lambda: ("matting", {"materials": [self._clip(_SHORT_CLIP)]}),
        }

    def __getitem__(self, name: str) -> Made:
        if name not in self._made:
            scene, asked = self._recipes[name]()
            self._made[name] = self._make(name, scene, asked)
        return self._made[name]

    def address(self, name: str, file: str) -> str:
        """Where a file of a result is to be fetched from, as the api tells it now."""
        told = self.client.result(self[name].task_id)["files"]
        return str(next(one["url"] for one in told if one["name"] == file))

    def _make(self, name: str, scene: str, asked: Json) -> Made:
        task_id = self.client.submit(scene, **asked).task_id
        events = list(self.client.watch(task_id))
        assert events[-1].name == "task.succeeded.v1", events[-1]
        files = self.client.download(task_id, self._directory / name)
        return Made(
            task_id=task_id,
            inputs=tuple(asked.get("materials", ())),
            files={path.name: path for path in files},
            facts=dict(self.client.result(task_id)["facts"] or {}),
        )

    def _clip(self, how: tuple[str, ...]) -> str:
        bunny = next(clip for clip in samples() if clip.name == "bigbuckbunny.mp4")
        path = self._directory / f"bunny-{len(how)}.mp4"
        return self.client.upload(path if path.exists() else odd(bunny, path, *how))

    def _picture(self, hue: int) -> str:
        return self.client.upload(_draw(self._directory / f"{hue}.png", hue))

    def _autocut(self) -> tuple[str, Json]:
        asked: Json = {"target_seconds": 3, "aspect": "9:16", "title": "Ein Hase"}
        return "autocut", {"materials": [self._clip(_SMALL_CLIP)], "parameters": asked}

    def _postcard(self) -> tuple[str, Json]:
        asked: Json = {"template": "postcard", "texts": {"title": "海边 · Sommer"}}
        inputs = [self._picture(40), self._clip(_SMALL_CLIP)]
        return "smart", {"materials": inputs, "parameters": asked, "title": "海边 · Sommer"}

    def _words(self, prompt: str) -> Json:
        asked: Json = {"width": 64, "height": 64, "steps": 4, "seed": 7}
        return {"prompt": prompt, "parameters": asked}

    def _stylised(self) -> tuple[str, Json]:
        asked: Json = {"seconds": 1.5, "width": 128, "steps": 4, "seed": 7}
        inputs = [self._clip(_SMALL_CLIP)]
        return "genai", {"materials": inputs, "prompt": "clay", "parameters": asked}

    def _cut_outs(self, *hues: int, **asked: Any) -> Json:  # noqa: ANN401 - parameters are JSON
        inputs = [self._picture(hue) for hue in hues]
        return {"materials": inputs, "parameters": {"size": 256, **asked}}


def _draw(path: Path, hue: int) -> Path:
    """Somebody in the middle, more or less: an ellipse on a slope of colour."""
    y, x = np.mgrid[0:480, 0:480]
    pixels = np.stack([x // 2, y // 2, np.full_like(x, hue)], axis=-1).astype(np.uint8)
    pixels[((x - 240) / 120) ** 2 + ((y - 250) / 190) ** 2 < 1] = (230, 190, 160)
    Image.fromarray(pixels).save(path)
    return path
