"""Cut-outs of pictures: held against a known truth, on every kind of file, many at a time."""

import contextlib
import gc
import io
import os
import subprocess
import sys
import tracemalloc
import zipfile
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any, NamedTuple

import cv2
import msgspec
import numpy as np
import numpy.typing as npt
import pytest
from PIL import Image, ImageCms

from cutlog.model_files import ensure_models
from gpu_runners.pipelines.matting import Matting
from gpu_runners.pipelines.matting.cutting import WORK_SIDE_MAX
from gpu_runners.pipelines.matting.cutting import cut as cut_one
from gpu_runners.pipelines.matting.fringes import freed
from gpu_runners.pipelines.matting.manifest import Entry, Manifest, Status
from gpu_runners.pipelines.matting.pixels import Picture
from gpu_runners.pipelines.matting.shelf import LOOSE_FILES_MAX, file_stems
from gpu_runners.pipelines.pipeline import InputError, PipelineError, Product, Progress, Work
from schema.failures import FailureClass
from tests.gpu_runners.phones import dng
from tests.support.hairy import Hairy, hairy, write

pytestmark = pytest.mark.media

_ROOT = Path(__file__).parents[2]
_MODELS = _ROOT / ".cutlog" / "models"
_ORIENTATION = 0x0112

MakeFile = Callable[[Image.Image, Path], Path]


class Cut(NamedTuple):
    product: Product
    manifest: Manifest
    progress: list[Progress]

    @property
    def entry(self) -> Entry:
        (entry,) = self.manifest.pictures
        return entry

    @property
    def path(self) -> Path:
        return self.product.files[0].path

    @property
    def rgba(self) -> npt.NDArray[np.uint8]:
        with Image.open(self.path) as image:
            return np.asarray(image.convert("RGBA"))

    def box(self) -> tuple[int, int, int, int]:
        """Left, top, right, bottom of what is seen."""
        seen = self.rgba[..., 3] > 24
        rows, columns = np.flatnonzero(seen.any(axis=1)), np.flatnonzero(seen.any(axis=0))
        return int(columns[0]), int(rows[0]), int(columns[-1]) + 1, int(rows[-1]) + 1


@pytest.fixture(scope="module")
def matting() -> Matting:
    ensure_models(_MODELS)
    return Matting(models_directory=_MODELS)


@pytest.fixture(scope="module")
def small() -> Hairy:
    return hairy(1, 320)


def cut(matting: Matting, directory: Path, inputs: dict[str, Path], **parameters: object) -> Cut:
    progress: list[Progress] = []
    out = directory / f"work-{len(list(directory.iterdir()))}"
    out.mkdir()
    work = Work(
        task_id="task",
        token=1,
        scene="matting",
        parameters=parameters,
        inputs=inputs,
        directory=out,
    )
    product = matting.run(work, progress.append)
    told = next(file for file in product.files if file.name == "manifest.json")
    manifest = msgspec.json.decode(told.path.read_bytes(), type=Manifest)
    return Cut(product, manifest, progress)


def refused(matting: Matting, directory: Path, path: Path) -> InputError:
    with pytest.raises(InputError) as error:
        cut(matting, directory, {"one": path})
    return error.value


def overlap(alpha: npt.NDArray[np.floating[Any]], truth: npt.NDArray[np.float32]) -> float:
    ours, theirs = alpha > 0.5, truth > 0.5
    return float((ours & theirs).sum() / (ours | theirs).sum())


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_a_hairy_subject_over_grass_is_cut_out_to_the_hair(
    seed: int, matting: Matting, tmp_path: Path
) -> None:
    truth = hairy(seed)
    made = cut(matting, tmp_path, {"one": write(truth.picture, tmp_path / "one.png")})
    rgba = made.rgba
    alpha = rgba[..., 3].astype(np.float32) / 255
    assert made.entry.refined
    assert float(((alpha - truth.alpha) ** 2).mean()) < 0.005
    assert overlap(alpha, truth.alpha) > 0.95
    assert not rgba[rgba[..., 3] == 0].any(), "colours hide where nothing is seen"
    hair = (truth.alpha > 0.2) & (truth.alpha < 0.9) & (alpha > 0.2)
    photo = truth.photo[hair].astype(np.float32)
    left = np.abs(rgba[..., :3][hair] - photo).mean()
    before = np.abs(truth.picture[hair] - photo).mean()
    assert left < before * 0.75, "the grass still shines through the hair"


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_the_colours_of_the_ground_are_taken_out_of_what_is_half_of_each(seed: int) -> None:
    truth = hairy(seed, 512)
    alpha = np.rint(truth.alpha * 255).astype(np.uint8)
    made = freed(truth.picture, alpha)
    assert not made[alpha == 0].any()
    np.testing.assert_array_equal(made[alpha == 255], truth.picture[alpha == 255])
    hair = (alpha > 50) & (alpha < 230)
    photo = truth.photo[hair].astype(np.float32)
    before = np.abs(truth.picture[hair] - photo).mean()
    assert np.abs(made[hair] - photo).mean() < before * 0.5


def test_what_is_smoke_all_over_keeps_a_colour_of_its_own() -> None:
    grey = np.full((64, 64, 3), 100, np.uint8)
    alpha = np.full((64, 64), 20, np.uint8)
    assert np.abs(freed(grey, alpha).astype(int) - 100).max() <= 1


def test_without_refining_the_mask_of_the_network_is_taken(
    matting: Matting, tmp_path: Path
) -> None:
    truth = hairy(1)
    path = write(truth.picture, tmp_path / "one.png")
    coarse = cut(matting, tmp_path, {"one": path}, refine=False)
    assert not coarse.entry.refined
    assert overlap(coarse.rgba[..., 3].astype(np.float32) / 255, truth.alpha) < 0.95


@pytest.mark.parametrize(
    ("how", "unwanted"),
    [("plain", {"scipy", "numba", "av", "torch"}), ("refined", {"numba", "av", "torch"})],
)
def test_a_worker_loads_no_compiler_and_no_films_for_pictures(
    how: str, unwanted: set[str], small: Hairy, tmp_path: Path
) -> None:
    """A compiler at work in an attempt is minutes of the user's card, anew at each cold cache."""
    ensure_models(_MODELS)
    (tmp_path / "in").mkdir()
    (tmp_path / "out").mkdir()
    write(small.picture, tmp_path / "in" / "one.png")
    program = (
        "import sys\n"
        "from tests.benchmarks.matting.ours import main\n"
        f"assert main({str(tmp_path / 'in')!r}, {str(tmp_path / 'out')!r}, {how!r}) == 0\n"
        f"assert not {unwanted!r} & {{*sys.modules}}\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, cwd=_ROOT)


def test_the_same_picture_gives_the_same_bytes(
    small: Hairy, matting: Matting, tmp_path: Path
) -> None:
    path = write(small.picture, tmp_path / "one.png")
    first, second = (cut(matting, tmp_path, {"one": path, "two": path}) for _ in range(2))
    for one, other in zip(first.product.files, second.product.files, strict=True):
        if one.name != "manifest.json":  # which tells how long it took
            assert one.path.read_bytes() == other.path.read_bytes()


def test_a_turned_picture_is_turned_once_and_its_metadata_dropped(
    small: Hairy, matting: Matting, tmp_path: Path
) -> None:
    picture = small.picture[:, :256]
    upright = write(picture, tmp_path / "upright.png")
    turned = tmp_path / "turned.png"
    exif = Image.Exif()
    exif[_ORIENTATION] = 6
    exif[0x010F] = "A camera that tells"
    Image.fromarray(np.ascontiguousarray(np.rot90(picture))).save(turned, exif=exif)
    one, other = (cut(matting, tmp_path, {"one": path}) for path in (upright, turned))
    assert (other.entry.source_width, other.entry.source_height) == (256, 320)
    np.testing.assert_array_equal(one.rgba, other.rgba)
    with Image.open(other.path) as image:
        assert not image.getexif()
    assert b"camera" not in other.path.read_bytes()


@pytest.mark.parametrize("ending", ["jpg", "png"])
def test_the_size_of_a_picture_that_is_read_smaller_is_told_as_it_is(
    small: Hairy, matting: Matting, tmp_path: Path, ending: str
) -> None:
    large = tmp_path / f"large.{ending}"
    exif = Image.Exif()
    exif[_ORIENTATION] = 6
    Image.fromarray(small.picture).convert("L").resize((8000, 6500)).save(
        large, exif=exif, compress_level=1
    )
    made = cut(matting, tmp_path, {"one": large}, size=200)
    assert (made.entry.source_width, made.entry.source_height) == (6500, 8000)


def _cmyk(image: Image.Image, path: Path) -> Path:
    image.convert("CMYK").save(path.with_suffix(".jpg"), quality=95)
    return path.with_suffix(".jpg")


def _palette(image: Image.Image, path: Path) -> Path:
    image.quantize(256).save(path)
    return path


def _gray(image: Image.Image, path: Path) -> Path:
    image.convert("L").save(path)
    return path


def _wide(image: Image.Image, path: Path) -> Path:
    wide = np.asarray(image.convert("L")).astype(np.uint16) * 257
    assert cv2.imwrite(str(path), wide)
    return path


def _profiled(image: Image.Image, path: Path) -> Path:
    profile = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB"))
    image.save(path, icc_profile=profile.tobytes())
    return path


def _bmp(image: Image.Image, path: Path) -> Path:
    image.save(path.with_suffix(".bmp"))
    return path.with_suffix(".bmp")


def _tiff(image: Image.Image, path: Path) -> Path:
    image.save(path.with_suffix(".tif"), compression="tiff_lzw")
    return path.with_suffix(".tif")


@pytest.mark.parametrize("as_file", [_cmyk, _palette, _gray, _wide, _profiled, _bmp, _tiff])
def test_every_kind_of_picture_is_normalised_first(
    as_file: MakeFile, small: Hairy, matting: Matting, tmp_path: Path
) -> None:
    path = as_file(Image.fromarray(small.picture), tmp_path / "one.png")
    made = cut(matting, tmp_path, {"one": path})
    rgba = made.rgba
    assert overlap(rgba[..., 3].astype(np.float32) / 255, small.alpha) > 0.85
    inside = small.alpha == 1
    shown = rgba[..., :3][inside & (rgba[..., 3] > 250)].astype(np.float32).mean()
    assert abs(shown - small.photo[inside].mean()) < 12


def test_alpha_that_is_there_already_is_multiplied_and_what_it_hides_never_shows(
    small: Hairy, matting: Matting, tmp_path: Path
) -> None:
    own = np.full(small.alpha.shape, 255, np.uint8)
    own[:, :160] = 0
    hidden = small.picture.copy()
    hidden[:, :160] = (255, 0, 255)
    path = write(np.dstack((hidden, own)), tmp_path / "one.png")
    made = cut(matting, tmp_path, {"one": path})
    rgba = made.rgba
    assert not rgba[:, :160].any()
    assert rgba[..., 3].any()
    seen = rgba[:, 160:][rgba[:, 160:, 3] > 0].astype(int)
    magenta = (seen[:, 0] > 200) & (seen[:, 1] < 60) & (seen[:, 2] > 200)
    assert not magenta.any()


def test_a_shop_gets_a_square_with_the_subject_in_its_middle(
    small: Hairy, matting: Matting, tmp_path: Path
) -> None:
    shifted = np.roll(small.picture, 40, axis=1)
    path = write(shifted, tmp_path / "one.png")
    made = cut(matting, tmp_path, {"one": path}, size=500, margin=0.1)
    assert made.rgba.shape == (500, 500, 4)
    left, top, right, bottom = made.box()
    assert abs(left - (500 - right)) <= 3
    assert abs(top - (500 - bottom)) <= 3
    assert abs(max(right - left, bottom - top) - 400) <= 3


@pytest.mark.parametrize(
    ("kind", "background", "mode", "corner"),
    [
        ("png", None, "RGBA", (0, 0, 0, 0)),
        ("png", "#10a0f0", "RGB", (16, 160, 240)),
        ("webp", None, "RGBA", (0, 0, 0, 0)),
        ("jpeg", None, "RGB", (255, 255, 255)),
        ("jpeg", "#204060", "RGB", (32, 64, 96)),
    ],
)
def test_the_format_and_the_colour_behind_are_the_callers_choice(
    kind: str,
    background: str | None,
    mode: str,
    corner: tuple[int, ...],
    small: Hairy,
    matting: Matting,
    tmp_path: Path,
) -> None:
    path = write(small.picture, tmp_path / "one.png")
    made = cut(matting, tmp_path, {"one": path}, format=kind, background=background)
    with Image.open(made.path) as image:
        assert image.format == kind.upper()
        assert image.mode == mode
        told = image.getpixel((0, 0))
    assert isinstance(told, tuple)
    assert np.abs(np.array(told) - np.array(corner)).max() <= 2
    assert made.product.files[0].content_type == f"image/{kind}"


@pytest.mark.parametrize(
    "parameters",
    [
        {"margin": 0.1},
        {"size": 100, "margin": 0.6},
        {"format": "gif"},
        {"background": "red"},
        {"size": 1_000_000},
        {"colour": "red"},
    ],
)
def test_wrong_parameters_are_told_by_name(
    parameters: dict[str, object], matting: Matting, tmp_path: Path
) -> None:
    with pytest.raises(InputError) as error:
        cut(matting, tmp_path, {"one": tmp_path / "never opened"}, **parameters)
    assert error.value.reason == "parameters"
    assert any(name in error.value.message for name in parameters)


def test_from_no_picture_or_too_many_nothing_is_begun(matting: Matting, tmp_path: Path) -> None:
    for count in (0, 501):
        inputs = {f"m{i}": tmp_path / "never opened" for i in range(count)}
        with pytest.raises(InputError, match=f"1 to 500 pictures; {count}"):
            cut(matting, tmp_path, inputs)


def _empty(path: Path) -> None:
    path.write_bytes(b"")


def _text(path: Path) -> None:
    path.write_text("a list of wishes\n")


def _raw(path: Path) -> None:
    path.write_bytes(dng())


def _narrow(path: Path) -> None:
    Image.new("RGB", (5, 300)).save(path, "PNG")


def _bomb(path: Path) -> None:
    Image.new("1", (30_000, 30_000)).save(path, "PNG")


def _half_jpeg(path: Path) -> None:
    out = io.BytesIO()
    Image.fromarray(hairy(1, 320).picture).save(out, "JPEG")
    path.write_bytes(out.getvalue()[: len(out.getvalue()) // 2])


def _flat(path: Path) -> None:
    Image.new("RGB", (300, 200), (120, 130, 140)).save(path, "PNG")


def _spoiled(path: Path) -> None:
    out = io.BytesIO()
    Image.fromarray(hairy(1, 320).picture).save(out, "PNG")
    data = bytearray(out.getvalue())
    data[60:4_000] = bytes(len(data[60:4_000]))
    path.write_bytes(data)


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (_empty, "empty"),
        (_text, "not_media"),
        (_raw, "unsupported"),
        (_narrow, "too_small"),
        (_bomb, "too_large"),
        (_half_jpeg, "truncated"),
        (_spoiled, "damaged"),
        (_flat, "no_subject"),
    ],
)
def test_what_cannot_be_cut_out_is_refused_in_its_own_words(
    make: Callable[[Path], None], reason: str, matting: Matting, tmp_path: Path
) -> None:
    path = tmp_path / "one.jpg"
    make(path)
    error = refused(matting, tmp_path, path)
    assert (error.reason, error.error_class) == (reason, FailureClass.INPUT)


def test_one_that_fails_does_not_fail_the_rest(
    small: Hairy, matting: Matting, tmp_path: Path
) -> None:
    good = write(small.picture, tmp_path / "good.png")
    bad = tmp_path / "bad.png"
    bad.write_bytes(b"")
    made = cut(matting, tmp_path, {"first": bad, "../second": good})
    first, second = made.manifest.pictures
    assert (first.name, first.status, first.reason) == ("first", Status.FAILED, "empty")
    assert (second.name, second.status, second.file) == (
        "../second",
        Status.MADE,
        "picture-002.png",
    )
    assert [f.name for f in made.product.files] == [
        "picture-002.png",
        "manifest.json",
        "poster.jpg",
    ]
    assert made.product.facts["failed"] == 1
    with Image.open(made.product.files[2].path) as poster:
        poster.load()


def test_one_too_long_for_its_kind_of_file_fails_alone(
    small: Hairy, matting: Matting, tmp_path: Path
) -> None:
    good = write(small.picture, tmp_path / "good.png")
    wide = tmp_path / "wide.png"
    Image.fromarray(small.picture).resize((16_400, 320)).save(wide)
    made = cut(matting, tmp_path, {"wide": wide, "good": good}, format="webp", refine=False)
    first, second = made.manifest.pictures
    assert (first.status, first.reason) == (Status.FAILED, "too_large")
    assert second.status is Status.MADE


_STRIPS = [(16_400, 64), (64, 16_400), (2_000, 8), (9, 400), (8, 8)]


@pytest.mark.parametrize("refine", [True, False])
@pytest.mark.parametrize(("width", "height"), _STRIPS)
@pytest.mark.parametrize("seen", ["middle", "corner", "line", "all"])
def test_a_strip_or_a_speck_is_cut_out_like_any_other(
    width: int, height: int, seen: str, *, refine: bool
) -> None:
    down, along = np.mgrid[:320, :320] / 320
    far = {
        "middle": np.hypot(down - 0.5, along - 0.5) - 0.2,
        "corner": np.hypot(down, along) - 0.15,
        "line": np.abs(down - 0.5) - 0.05,
        "all": np.full((320, 320), -1.0),
    }[seen]
    mask = np.clip(0.5 - 30 * far, 0, 1).astype(np.float32)
    colours = np.random.default_rng(0).integers(0, 255, (height, width, 3), np.uint8)
    made = cut_one(Picture(colours, None), mask, refined=refine, side_max=WORK_SIDE_MAX)
    assert made.alpha.shape == (height, width)
    assert made.alpha.any()
    assert (made.alpha > 127).mean() < 0.5 or seen == "all"
    assert not made.colours[made.alpha == 0].any()


def test_no_two_cut_outs_share_a_name_and_none_leaves_its_folder() -> None:
    names = ["a", "A", "../x", "manifest", "picture-003", "b/c", ".hidden", "x" * 300]
    stems = file_stems(names)
    assert len({stem.lower() for stem in stems}) == len(names)
    assert not any("/" in stem or stem.startswith(".") for stem in stems)


def test_without_the_network_the_runner_says_what_it_lacks(tmp_path: Path, small: Hairy) -> None:
    path = write(small.picture, tmp_path / "one.png")
    with pytest.raises(PipelineError, match=r"u2netp\.onnx.*make setup") as error:
        cut(Matting(models_directory=tmp_path), tmp_path, {"one": path})
    assert error.value.error_class is FailureClass.INTERNAL


@contextlib.contextmanager
def traced() -> Generator[None]:
    """Python counts what it holds; numpy tells it of its arrays."""
    tracemalloc.start()
    try:
        yield
    finally:
        tracemalloc.stop()


@pytest.mark.timeout(600)
def test_a_hundred_pictures_come_as_one_archive_and_leave_nothing_in_memory(
    small: Hairy, matting: Matting, tmp_path: Path
) -> None:
    good = write(small.picture, tmp_path / "good.jpg")
    bad = tmp_path / "bad.jpg"
    bad.write_bytes(good.read_bytes()[:2_000])
    inputs = {f"m{i:03d}": bad if i % 25 == 7 else good for i in range(100)}
    assert len(inputs) > LOOSE_FILES_MAX
    percents: list[float] = []
    held: list[int] = []

    def report(progress: Progress) -> None:
        percents.append(progress.percent)
        held.append(tracemalloc.get_traced_memory()[0])

    # What is loaded once is loaded, whichever test comes first.
    cut(matting, tmp_path, {"one": good, "other": bad}, format="webp")
    out = tmp_path / "out"
    out.mkdir()
    work = Work(
        task_id="task",
        token=1,
        scene="matting",
        parameters={"format": "webp"},
        inputs=inputs,
        directory=out,
    )
    with traced():
        product = matting.run(work, report)
        gc.collect()
        left, _ = tracemalloc.get_traced_memory()
    assert percents == [float(n) for n in range(101)]
    # What is at work comes and goes; what would be left behind would lift the lowest, too.
    assert min(held[-20:]) - min(held[20:40]) < 30 * small.picture.nbytes
    assert left < small.picture.nbytes
    assert [file.name for file in product.files] == ["cutouts.zip", "manifest.json", "poster.jpg"]
    manifest = msgspec.json.decode((out / "manifest.json").read_bytes(), type=Manifest)
    assert [entry.name for entry in manifest.pictures] == list(inputs)
    failed = [entry.name for entry in manifest.pictures if entry.status is Status.FAILED]
    assert failed == ["m007", "m032", "m057", "m082"]
    with zipfile.ZipFile(out / "cutouts.zip") as archive:
        assert archive.testzip() is None
        assert archive.namelist() == [f"{n}.webp" for n in inputs if n not in failed]


@pytest.mark.timeout(600)
def test_a_worker_stays_as_large_as_it_is_over_a_hundred_pictures() -> None:
    # Large blocks go back to the system at once, so that what is resident is what is used.
    frugal = {"MALLOC_ARENA_MAX": "1", "MALLOC_MMAP_THRESHOLD_": "262144"}
    told = subprocess.run(
        [sys.executable, "-m", "tests.benchmarks.matting.memory", "--pictures", "100"],
        check=False,
        cwd=_ROOT,
        env={**os.environ, **frugal},
        capture_output=True,
        text=True,
    )
    assert told.returncode == 0, told.stdout + told.stderr
