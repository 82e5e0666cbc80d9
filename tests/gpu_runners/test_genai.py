"""Genai: what comes out, what is refused, and who may say no."""

import contextlib
import json
from collections.abc import Generator
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest
from av.error import MemoryError as AvMemoryError
from PIL import Image

from gpu_runners.pipelines.genai import Genai, clips
from gpu_runners.pipelines.genai.clips import Cut, take_frames
from gpu_runners.pipelines.genai.safety import SETTING, WordList, safety_of
from gpu_runners.pipelines.genai.smoothing import Smoothing
from gpu_runners.pipelines.loudness import measured
from gpu_runners.pipelines.pipeline import InputError, PipelineError, Product, Progress, Work
from gpu_runners.pipelines.probe import probe
from gpu_runners.pipelines.probe_limits import ProbeLimits
from schema.failures import FailureClass

pytestmark = [
    pytest.mark.media,
    # The library's own: it hands tensors to numpy in a way that numpy will not take for ever.
    pytest.mark.filterwarnings(r"ignore::DeprecationWarning:(diffusers|numpy)(\..*)?"),
    # The first test pays for the import of torch and diffusers.
    pytest.mark.timeout(400),
]

SMALL = {"prompt": "a red fox", "width": 64, "height": 64, "steps": 4}


@pytest.fixture(scope="module")
def genai() -> Genai:
    """One pipeline, as in a worker: its model is loaded once."""
    return Genai()


def work(directory: Path, **more: Any) -> Work:  # noqa: ANN401 - fields of Work
    directory.mkdir(exist_ok=True)
    fields: dict[str, Any] = {
        "task_id": "task",
        "token": 1,
        "scene": "genai",
        "parameters": SMALL,
        "inputs": {},
        "directory": directory,
    }
    return Work(**(fields | more))


def made(genai: Genai, directory: Path, **more: Any) -> Product:  # noqa: ANN401 - fields of Work
    return genai.run(work(directory, **more), lambda _: None)


def pixels(path: Path) -> np.ndarray[Any, Any]:
    with Image.open(path) as picture:
        return np.asarray(picture.convert("RGB"), dtype=np.float32)


def photo(path: Path, size: tuple[int, int] = (96, 64)) -> Path:
    """Left half dark, right half bright; nothing that could be mistaken for noise."""
    picture = Image.new("RGB", size, (40, 60, 90))
    picture.paste((230, 200, 150), (size[0] // 2, 0, *size))
    picture.save(path)
    return path


class Strict:
    """A judge that says no to whatever it is told to."""

    def __init__(self, *, prompts: bool = False, pictures: bool = False) -> None:
        self._prompts = prompts
        self._pictures = pictures
        self.judged: list[tuple[int, int]] = []

    def judge_prompt(self, prompt: str) -> str | None:
        return f"Not {len(prompt)} letters." if self._prompts else None

    def judge_picture(self, picture: Image.Image) -> str | None:
        self.judged.append(picture.size)
        return "Not this picture." if self._pictures else None


# --- pictures -------------------------------------------------------------------------------------


def test_a_prompt_becomes_a_picture_a_preview_and_a_poster(genai: Genai, tmp_path: Path) -> None:
    told: list[Progress] = []
    product = genai.run(work(tmp_path / "one"), told.append)
    names = [(file.name, file.content_type) for file in product.files]
    assert names == [
        ("picture-1.png", "image/png"),
        ("picture-1.webp", "image/webp"),
        ("poster.jpg", "image/jpeg"),
    ]
    for file in product.files:
        with Image.open(file.path) as picture:
            assert picture.size == (64, 64)
    assert pixels(product.files[0].path).std() > 10  # something is in it
    percents = [one.percent for one in told]
    assert (percents[0], percents[-1]) == (0, 100)
    assert percents == sorted(percents)
    assert [one.phase for one in told].count("making") == 1 + 4  # once a step
    assert product.card_seconds > 0
    assert product.facts["fingerprint"]["device"] in {"cpu", "cuda"}
    assert "fox" not in json.dumps(product.facts)  # a prompt is private


def test_the_same_task_makes_the_same_picture_and_another_task_another(
    genai: Genai, tmp_path: Path
) -> None:
    one, again = (made(genai, tmp_path / name) for name in ("one", "again"))
    other = made(genai, tmp_path / "other", task_id="other")
    seeded = made(genai, tmp_path / "seeded", parameters=SMALL | {"seed": one.facts["seeds"][0]})
    bits = [product.files[0].path.read_bytes() for product in (one, again, other, seeded)]
    assert bits[0] == bits[1] == bits[3]
    assert bits[0] != bits[2]


@pytest.mark.parametrize(
    "change",
    [
        {"prompt": "the blue sea"},
        {"negative_prompt": "a cat"},
        {"guidance": 12.0},
        {"seed": 5},
        {"steps": 6},
        {"scheduler": "euler"},
    ],
)
def test_whatever_is_asked_for_counts(
    genai: Genai, tmp_path: Path, change: dict[str, object]
) -> None:
    one = made(genai, tmp_path / "one", parameters=SMALL | {"seed": 4})
    other = made(genai, tmp_path / "other", parameters=SMALL | {"seed": 4} | change)
    assert one.files[0].path.read_bytes() != other.files[0].path.read_bytes()


def test_several_pictures_are_made_in_one_batch_each_with_a_seed_of_its_own(
    genai: Genai, tmp_path: Path
) -> None:
    several = made(genai, tmp_path / "several", parameters=SMALL | {"pictures": 3, "seed": 7})
    assert several.facts["seeds"] == [7, 8, 9]
    assert several.facts["fingerprint"]["batch"] == "3"
    files = [file.path for file in several.files if file.content_type == "image/png"]
    assert len({path.read_bytes() for path in files}) == 3
    second = made(genai, tmp_path / "second", parameters=SMALL | {"seed": 8})
    # Alone it has other roundings, which is why the batch is in the fingerprint; no other picture.
    assert np.abs(pixels(files[1]) - pixels(second.files[0].path)).max() <= 2


def test_with_its_lower_spec_a_picture_has_half_the_size_and_half_the_steps(
    genai: Genai, tmp_path: Path
) -> None:
    wanted = SMALL | {"width": 192, "height": 128, "steps": 8, "pictures": 2}
    product = made(genai, tmp_path / "less", parameters=wanted, lower_spec=True)
    facts = product.facts
    assert (facts["width"], facts["height"], facts["steps"]) == (96, 64, 4)
    assert facts["batch"] == 1
    assert facts["lower_spec"]


def test_a_picture_stays_like_its_input_the_more_the_less_strength(
    genai: Genai, tmp_path: Path
) -> None:
    source = photo(tmp_path / "photo.png")
    wanted = {"prompt": "oil", "steps": 10, "width": 96}
    apart = {}
    for strength in (0.2, 0.9):
        product = made(
            genai,
            tmp_path / f"{strength}",
            inputs={"photo": source},
            parameters=wanted | {"strength": strength},
        )
        assert (product.facts["width"], product.facts["height"]) == (96, 64)
        apart[strength] = np.abs(pixels(product.files[0].path) - pixels(source)).mean()
    assert apart[0.2] < apart[0.9]
    assert apart[0.2] < 60


def test_a_picture_is_turned_upright_and_its_transparency_becomes_white(
    genai: Genai, tmp_path: Path
) -> None:
    turned = Image.new("RGB", (64, 128), "navy")
    exif = turned.getexif()
    exif[0x0112] = 6
    turned.save(tmp_path / "turned.jpg", exif=exif)
    lying = made(
        genai,
        tmp_path / "lying",
        inputs={"a": tmp_path / "turned.jpg"},
        parameters={"steps": 2, "width": 128},
    )
    assert (lying.facts["width"], lying.facts["height"]) == (128, 64)
    Image.new("RGBA", (64, 64), (255, 0, 0, 0)).save(tmp_path / "clear.png")
    clear = made(
        genai,
        tmp_path / "clear",
        inputs={"a": tmp_path / "clear.png"},
        parameters={"steps": 10, "width": 64, "strength": 0.1, "seed": 1},
    )
    red, green, _ = pixels(clear.files[0].path).mean(axis=(0, 1))
    assert abs(red - green) < 60  # the red below nothing never shows


# --- clips ----------------------------------------------------------------------------------------


def test_a_clip_becomes_a_film_of_its_shape_with_its_sound(
    genai: Genai, short_clip: Path, tmp_path: Path
) -> None:
    judge = Strict()
    genai = Genai(safety=judge)
    product = made(
        genai,
        tmp_path / "film",
        inputs={"clip": short_clip},
        parameters={"prompt": "oil", "width": 128, "seconds": 1.5, "frame_rate": 6, "steps": 4},
    )
    assert [file.name for file in product.files] == ["film.mp4", "poster.jpg"]
    assert judge.judged == [(128, 72)] * 9
    with av.open(str(product.files[0].path)) as film:
        video, sound = film.streams.video[0], film.streams.audio[0]
        assert (video.width, video.height, video.frames) == (128, 72, 9)
        assert video.average_rate == 6
        assert video.duration is not None
        assert video.time_base is not None
        assert sound.duration is not None
        assert sound.time_base is not None
        seconds = float(video.duration * video.time_base)
        assert seconds == pytest.approx(1.5, abs=0.001)
        assert abs(float(sound.duration * sound.time_base) - seconds) < 0.04
        loud = np.concatenate([frame.to_ndarray() for frame in film.decode(sound)], axis=1)
    assert np.abs(loud).max() > 0.02
    loudness, _peak = measured(product.files[0].path, "anull")
    assert loudness == pytest.approx(-14, abs=1)
    assert product.facts["made"]["sound"] is True


def test_smoothing_follows_the_motion_and_takes_nothing_over_a_cut() -> None:
    random = np.random.default_rng(1)
    scene = np.asarray(
        Image.fromarray(random.integers(0, 256, (20, 30, 3), dtype=np.uint8)).resize((240, 160))
    )
    other = np.flip(scene, axis=1).copy()
    moving = [np.roll(scene, 3 * frame, axis=1) for frame in range(3)]
    noisy = [random.integers(0, 256, scene.shape, dtype=np.uint8) for _ in range(4)]
    smoothing = Smoothing(0.9)
    films = []
    for source, made_of_it in zip([*moving, other], noisy, strict=True):
        smoothing.before(source)
        films.append(smoothing.after(made_of_it).astype(np.float32))
    inside = (slice(30, -30), slice(30, -30))
    follows = np.abs(np.roll(films[0], 3, axis=1) - films[1])[inside].mean()
    stays = np.abs(films[0] - films[1])[inside].mean()
    assert follows < 20  # of noise that is 85 apart: taken over where it went,
    assert stays > 60  # not where it was,
    assert np.abs(films[3] - noisy[3]).mean() < 12  # and not from another picture


def test_a_clip_that_ends_before_it_begins_and_one_that_is_cut_short_are_refused(
    genai: Genai, short_clip: Path, tmp_path: Path
) -> None:
    late = refused(genai, tmp_path, inputs={"clip": short_clip}, parameters={"start_seconds": 99})
    assert late.reason == "too_short"
    half = tmp_path / "half.mp4"
    half.write_bytes(short_clip.read_bytes()[: short_clip.stat().st_size // 2])
    assert refused(genai, tmp_path, inputs={"clip": half}).reason == "truncated"


# --- refused --------------------------------------------------------------------------------------


def refused(genai: Genai, directory: Path, **more: Any) -> PipelineError:  # noqa: ANN401
    parameters = {"prompt": "a fox"} | more.pop("parameters", {})
    with pytest.raises(InputError) as caught:
        genai.run(work(directory / "refused", parameters=parameters, **more), lambda _: None)
    for path in (directory / "refused").glob("*"):
        assert path.suffix != ".mp4"
    return caught.value


@pytest.mark.parametrize(
    ("parameters", "word"),
    [
        ({"prompt": "  "}, "prompt"),
        ({"prompt": "x" * 4_001}, "prompt"),
        ({"pictures": 9}, "pictures"),
        ({"pictures": 0}, "pictures"),
        ({"width": 65}, "width"),
        ({"width": 4096}, "width"),
        ({"width": 1536, "height": 1536}, "smaller"),
        ({"steps": 101}, "steps"),
        ({"guidance": -1}, "guidance"),
        ({"strength": 1.5}, "strength"),
        ({"seed": -1}, "seed"),
        ({"scheduler": "fastest"}, "scheduler"),
        ({"model": "/etc"}, "model"),
    ],
)
def test_wrong_parameters_are_refused_before_anything_is_loaded(
    tmp_path: Path, parameters: dict[str, object], word: str
) -> None:
    fresh = Genai(diffusion_model="/nowhere")  # to load it would be another failure
    error = refused(fresh, tmp_path, parameters=parameters)
    assert error.reason == "parameters"
    assert word in error.message


def test_a_film_of_too_many_frames_and_a_clip_in_several_pictures_are_refused(
    short_clip: Path, tmp_path: Path
) -> None:
    clip = {"clip": short_clip}
    fresh = Genai(diffusion_model="/nowhere")
    many = refused(fresh, tmp_path, inputs=clip, parameters={"seconds": 20, "frame_rate": 24})
    assert "480 frames" in many.message
    assert refused(fresh, tmp_path, inputs=clip, parameters={"pictures": 2}).reason == "parameters"
    two = refused(fresh, tmp_path, inputs=clip | {"other": short_clip})
    assert two.reason == "inputs"


def test_files_that_are_no_picture_and_no_clip_are_refused_each_in_its_words(
    tmp_path: Path,
) -> None:
    fresh = Genai(diffusion_model="/nowhere")
    whole = photo(tmp_path / "photo.jpg", (800, 600)).read_bytes()
    (tmp_path / "empty").write_bytes(b"")
    (tmp_path / "text").write_text("#EXTM3U\nhttp://host/a.ts\n")
    (tmp_path / "cut").write_bytes(whole[: len(whole) // 2])
    Image.new("1", (30_000, 30_000)).save(tmp_path / "bomb.png")
    Image.new("RGB", (8, 8)).save(tmp_path / "tiny.png")
    frames = [Image.new("RGB", (64, 64), name) for name in ("red", "blue")]
    frames[0].save(tmp_path / "moving.gif", save_all=True, append_images=frames[1:])
    found = {
        name: refused(fresh, tmp_path, inputs={"a": tmp_path / name}).reason
        for name in ("empty", "text", "cut", "bomb.png", "tiny.png", "moving.gif")
    }
    assert found == {
        "empty": "empty",
        "text": "not_media",
        "cut": "truncated",
        "bomb.png": "too_large",
        "tiny.png": "unsupported",
        "moving.gif": "unsupported",
    }


def test_a_folder_without_a_model_is_the_operators_fault(tmp_path: Path) -> None:
    with pytest.raises(PipelineError, match=r"model_index\.json") as caught:
        made(Genai(diffusion_model=str(tmp_path)), tmp_path / "work")
    assert caught.value.error_class is FailureClass.INTERNAL


def test_memory_that_runs_out_is_told_as_that(tmp_path: Path) -> None:
    class Hungry(Strict):
        def judge_picture(self, picture: Image.Image) -> str | None:
            raise MemoryError(f"{picture.size}")

    with pytest.raises(PipelineError) as caught:
        made(Genai(safety=Hungry()), tmp_path / "work")
    assert caught.value.error_class is FailureClass.OUT_OF_MEMORY


@pytest.mark.parametrize(
    ("ending", "error_class"),
    [
        ("kill -9 $$", FailureClass.CRASHED),
        ("echo 'x.png: No space left on device' >&2; exit 1", FailureClass.INTERNAL),
        ("echo 'Cannot allocate memory' >&2; exit 1", FailureClass.OUT_OF_MEMORY),
    ],
)
def test_frames_that_ffmpeg_could_not_end_are_not_taken_for_the_whole_clip(
    short_clip: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    ending: str,
    error_class: FailureClass,
) -> None:
    """It writes one frame, and then it ends badly, by no fault of the clip."""
    fake = tmp_path / "ffmpeg"
    frame = 'for last; do :; done\n: > "$(dirname "$last")/00001.png"\n'
    fake.write_text(f"#!/bin/sh\n{frame}{ending}\n")
    fake.chmod(0o755)
    cut = Cut(
        source=short_clip,
        header=probe(short_clip, ProbeLimits()),
        start_seconds=0,
        seconds=0.5,
        frame_rate=8,
        shown=(64, 64),
        width=64,
        height=64,
    )
    monkeypatch.setattr("imageio_ffmpeg.get_ffmpeg_exe", lambda: str(fake))
    with pytest.raises(PipelineError) as caught:
        take_frames(cut, tmp_path / "frames")
    assert caught.value.error_class is error_class
    assert (tmp_path / "frames" / "00001.png").exists()


def test_a_clip_for_whose_first_frame_there_is_no_memory_is_not_called_damaged(
    short_clip: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    header = probe(short_clip, ProbeLimits())

    class Hungry:
        streams = (None,) * 8

        def decode(self, _: object) -> list[object]:
            raise AvMemoryError(12, "Cannot allocate memory")

    @contextlib.contextmanager
    def opened(*_: object) -> Generator[Hungry]:
        yield Hungry()

    monkeypatch.setattr(clips, "opened", opened)
    with pytest.raises(MemoryError):
        clips.shown_size(header, short_clip, ProbeLimits())


def test_a_warm_one_has_its_model_before_the_first_work() -> None:
    with pytest.raises(PipelineError, match=r"model_index\.json"):
        Genai(diffusion_model="/nowhere").warm()


# --- moderation -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "prompt",
    ["Child porn", "some CH1LD-P0RN please", "naked, naked  children", "be\u200bstiality"],
)
def test_words_of_the_list_are_refused_however_they_are_written(prompt: str) -> None:
    assert WordList().judge_prompt(prompt) is not None


@pytest.mark.parametrize(
    "prompt", ["a child with a kite", "a grape on a table", "the nude Maja", "ポートレート", ""]
)
def test_words_that_only_look_alike_pass(prompt: str) -> None:
    assert WordList().judge_prompt(prompt) is None


def test_a_prompt_that_is_refused_loads_nothing(tmp_path: Path) -> None:
    judge = Strict(prompts=True)
    fresh = Genai(diffusion_model="/nowhere", safety=judge)
    with pytest.raises(PipelineError, match="Not 9 letters") as caught:
        made(fresh, tmp_path / "work")
    assert caught.value.error_class is FailureClass.MODERATION
    assert not caught.value.error_class.retryable


def test_a_picture_that_is_refused_is_not_stored(tmp_path: Path) -> None:
    judge = Strict(pictures=True)
    with pytest.raises(PipelineError, match="Not this picture") as caught:
        made(Genai(safety=judge), tmp_path / "work", parameters=SMALL | {"steps": 1})
    assert caught.value.error_class is FailureClass.MODERATION
    assert judge.judged == [(64, 64)]
    assert not list((tmp_path / "work").rglob("*.png"))


def test_the_judge_is_a_setting() -> None:
    assert isinstance(safety_of({}), WordList)
    named = safety_of({SETTING: f"{Strict.__module__}:Strict"})
    assert type(named).__name__ == "Strict"
    for wrong in ("nowhere:judge", "json:dumps", "json", "builtins:dict"):
        with pytest.raises(PipelineError, match=SETTING):
            safety_of({SETTING: wrong})
