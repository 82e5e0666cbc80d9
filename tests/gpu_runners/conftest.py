"""The known montage, built once for the media tests of a run, and a way to make films of clips."""

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from cutlog.clips import ClipFacts
from cutlog.model_files import ensure_models
from gpu_runners.pipelines.autocut import Autocut, AutocutFacts
from gpu_runners.pipelines.pipeline import Progress, Work
from gpu_runners.pipelines.probe_limits import ProbeLimits
from tests.support.clips import montage, odd

_MODELS = Path(__file__).parents[2] / ".cutlog" / "models"


@functools.cache
def models_directory() -> Path:
    """The small models, fetched once."""
    ensure_models(_MODELS)
    return _MODELS


class Film(msgspec.Struct, frozen=True, kw_only=True):
    path: Path
    poster: Path
    thumbnails: Path
    edit: Path
    """The edit as OpenTimelineIO."""
    source: Path
    facts: AutocutFacts
    progress: tuple[Progress, ...]

    @property
    def keep(self) -> list[tuple[float, float]]:
        return [(kept.start_seconds, kept.end_seconds) for kept in self.facts.keep]


MakeFilm = Callable[..., Film]


@pytest.fixture(scope="session")
def known_clip(tmp_path_factory: pytest.TempPathFactory) -> ClipFacts:
    return montage(tmp_path_factory.mktemp("clips") / "montage.mp4")


@pytest.fixture(scope="session")
def short_clip(known_clip: ClipFacts, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The first 8 s of the montage, small."""
    out = tmp_path_factory.mktemp("short") / "short.mp4"
    return odd(
        known_clip.path,
        out,
        "-vf",
        "scale=480:270",
        *("-c:v", "libx264", "-preset", "ultrafast", "-crf", "20"),
        "-c:a",
        "aac",
    )


@pytest.fixture
def make_film(tmp_path: Path) -> MakeFilm:
    def make(
        source: Path,
        limits: ProbeLimits | None = None,
        *,
        music: Path | None = None,
        **parameters: Any,  # noqa: ANN401 - a JSON object
    ) -> Film:
        return cut(source, tmp_path, limits, music=music, **parameters)

    return make


@pytest.fixture(scope="session")
def known_film(known_clip: ClipFacts, tmp_path_factory: pytest.TempPathFactory) -> Film:
    return cut(known_clip.path, tmp_path_factory.mktemp("film"), None)


def cut(
    source: Path,
    directory: Path,
    limits: ProbeLimits | None,
    *,
    music: Path | None = None,
    **parameters: Any,  # noqa: ANN401 - a JSON object
) -> Film:
    directory.mkdir(exist_ok=True)
    progress: list[Progress] = []
    work = Work(
        task_id="task",
        token=1,
        scene="autocut",
        parameters=dict(parameters),
        inputs={"source": source} | ({"music": music} if music else {}),
        directory=directory,
    )
    product = Autocut(limits, models_directory()).run(work, progress.append)
    files = {file.name: file.path for file in product.files}
    return Film(
        path=files["film.mp4"],
        poster=files["poster.jpg"],
        thumbnails=files["thumbnails.jpg"],
        edit=files["edit.otio"],
        source=source,
        facts=msgspec.convert(product.facts, AutocutFacts),
        progress=tuple(progress),
    )
