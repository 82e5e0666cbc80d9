"""Animations and films through the scene `matting`: same length, alpha in each frame, own sound."""

from pathlib import Path

import av
import msgspec
import numpy as np
import numpy.typing as npt
import pytest
from PIL import Image, ImageSequence

from cutlog.ffmpeg import run_ffmpeg
from cutlog.model_files import ensure_models
from gpu_runners.pipelines.matting import Matting, moving
from gpu_runners.pipelines.pipeline import InputError, Product, Progress, Work
from gpu_runners.pipelines.probe import SourceHeader, probe
from gpu_runners.pipelines.probe_limits import ProbeLimits
from schema.failures import FailureClass
from tests.support.hairy import hairy

pytestmark = pytest.mark.media

_MODELS = Path(__file__).parents[2] / ".cutlog" / "models"
_SIDE = 192
_FRAMES = 10


@pytest.fixture(scope="module")
def matting() -> Matting:
    ensure_models(_MODELS)
    return Matting(models_directory=_MODELS)


@pytest.fixture(scope="module")
def frames() -> list[Image.Image]:
    """A subject that walks to the right."""
    picture = hairy(1, _SIDE).picture
    return [Image.fromarray(np.roll(picture, 3 * n, axis=1)) for n in range(_FRAMES)]


@pytest.fixture(scope="module")
def film(frames: list[Image.Image], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """10 frames a second, a tone, stored on its side and turned by its matrix."""
    folder = tmp_path_factory.mktemp("film")
    for number, frame in enumerate(frames):
        frame.transpose(Image.Transpose.ROTATE_90).crop((0, 0, _SIDE, 160)).save(
            folder / f"{number:02d}.png"
        )
    flat, turned = folder / "flat.mp4", folder / "turned.mp4"
    run_ffmpeg(
        *("-loglevel", "error", "-framerate", "10", "-i", str(folder / "%02d.png")),
        *("-f", "lavfi", "-i", "sine=frequency=440:duration=1"),
        *("-c:v", "libx264", "-pix_fmt", "yuv420p", "-crf", "12", "-c:a", "aac", str(flat)),
    )
    run_ffmpeg(
        *("-loglevel", "error", "-display_rotation", "-90", "-i", str(flat)),
        *("-c", "copy", str(turned)),
    )
    return turned


def cut(
    matting: Matting, directory: Path, path: Path, **parameters: object
) -> tuple[Product, list[Progress]]:
    progress: list[Progress] = []
    out = directory / f"work-{len(list(directory.iterdir()))}"
    out.mkdir()
    work = Work(
        task_id="task",
        token=1,
        scene="matting",
        parameters=parameters,
        inputs={"one": path},
        directory=out,
    )
    return matting.run(work, progress.append), progress


def shown(path: Path, width: int, height: int) -> npt.NDArray[np.uint8]:
    """All frames with their alpha, which only the decoder of libvpx reads."""
    out = path.with_suffix(".rgba")
    command = ["-loglevel", "error", "-y", "-c:v", "libvpx-vp9", "-i", str(path)]
    run_ffmpeg(*command, "-f", "rawvideo", "-pix_fmt", "rgba", str(out))
    return np.frombuffer(out.read_bytes(), np.uint8).reshape(-1, height, width, 4)


def test_an_animation_keeps_its_frames_and_how_long_each_lasts(
    frames: list[Image.Image], matting: Matting, tmp_path: Path
) -> None:
    path = tmp_path / "one.gif"
    lasting = [50, 120, 80, 200]
    frames[0].save(path, save_all=True, append_images=frames[1:4], duration=lasting, loop=0)
    product, progress = cut(matting, tmp_path, path)
    assert product.files[0].content_type == "image/webp"
    with Image.open(product.files[0].path) as made:
        told = []
        for frame in ImageSequence.Iterator(made):
            alpha = np.asarray(frame.convert("RGBA"))[..., 3]
            assert alpha[0, 0] == 0
            assert alpha[_SIDE // 2, _SIDE // 2] == 255
            told.append(frame.info["duration"])
    assert told == lasting
    assert len(progress) >= 4
    assert [p.percent for p in progress] == sorted(p.percent for p in progress)


def test_a_film_becomes_a_film_with_alpha_and_its_own_sound(
    film: Path, matting: Matting, tmp_path: Path
) -> None:
    product, _ = cut(matting, tmp_path, film)
    path = product.files[0].path
    assert (path.name, product.files[0].content_type) == ("one.webm", "video/webm")
    with av.open(str(path)) as made:
        assert made.streams.video[0].codec_context.name == "vp9"
        assert (made.streams.video[0].width, made.streams.video[0].height) == (160, _SIDE)
        assert made.streams.audio[0].codec_context.name == "opus"
        assert made.duration is not None
        assert abs(made.duration / av.time_base - 1.0) < 0.1
    seen = shown(path, 160, _SIDE)
    assert len(seen) == _FRAMES
    alpha = seen[..., 3]
    assert (alpha[:, 4, 4] < 16).all()
    assert (alpha[:, _SIDE // 2, 80] > 240).all()
    covered = (alpha > 127).mean(axis=(1, 2))
    assert covered.max() - covered.min() < 0.08


@pytest.mark.parametrize("transfer", ["arib-std-b67", "smpte2084"])
def test_the_subject_of_an_hdr_film_keeps_the_colours_of_an_ordinary_one(
    transfer: str, film: Path, matting: Matting, tmp_path: Path
) -> None:
    """As phones film by default; up to where what is brighter than paper needs its room."""
    wide = tmp_path / "wide.mov"
    to = f"zscale=tin=iec61966-2-1:pin=bt709:min=bt709:t={transfer}:p=bt2020:m=bt2020nc:npl=203"
    run_ffmpeg(
        *("-loglevel", "error", "-i", str(film), "-vf", f"scale=out_color_matrix=bt709,{to}"),
        *("-pix_fmt", "yuv420p10le", "-c:v", "libx265", "-x265-params", "log-level=none:pools=1"),
        *("-crf", "10", "-tag:v", "hvc1", "-c:a", "copy", str(wide)),
    )
    assert probe(wide, ProbeLimits()).hdr
    plain, _ = cut(matting, tmp_path, film)
    product, _ = cut(matting, tmp_path, wide)
    wanted = shown(plain.files[0].path, 160, _SIDE)[4].astype(int)
    made = shown(product.files[0].path, 160, _SIDE)[4].astype(int)
    inside = (wanted[..., 3] > 250) & (made[..., 3] > 250) & (wanted[..., :3].max(axis=-1) < 200)
    assert inside.mean() > 0.1
    assert np.abs(made - wanted)[inside][:, :3].mean() < 7


def test_an_animation_too_wide_for_its_kind_of_file_is_refused(
    frames: list[Image.Image], matting: Matting, tmp_path: Path
) -> None:
    path = tmp_path / "wide.gif"
    wide = [frame.resize((16_400, 16)) for frame in frames[:2]]
    wide[0].save(path, save_all=True, append_images=wide[1:], duration=100)
    with pytest.raises(InputError, match="16400 x 16") as error:
        cut(matting, tmp_path, path)
    assert error.value.reason == "too_large"


def test_of_two_sounds_the_loudest_is_kept_and_the_main_picture_is_cut(
    film: Path, matting: Matting, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = probe(film, ProbeLimits())

    def second(path: Path, limits: ProbeLimits) -> SourceHeader:
        found = probe(path, limits)
        return msgspec.structs.replace(found, video_index=1, width=whole.width, height=whole.height)

    monkeypatch.setattr(moving, "probe", second)
    path = tmp_path / "two.mp4"
    run_ffmpeg(
        *("-loglevel", "error", "-i", str(film), "-f", "lavfi", "-i", "anullsrc=duration=1"),
        *("-f", "lavfi", "-i", "color=size=32x32:duration=1:rate=10"),
        *("-map", "2:v", "-map", "0:v", "-map", "1:a", "-map", "0:a", "-c:v", "libx264"),
        str(path),
    )
    product, _ = cut(matting, tmp_path, path)
    with av.open(str(product.files[0].path)) as made:
        heard = np.concatenate([frame.to_ndarray() for frame in made.decode(audio=0)], axis=1)
    assert np.abs(heard).max() > 0.05


def test_a_film_on_a_colour_needs_no_alpha(film: Path, matting: Matting, tmp_path: Path) -> None:
    product, _ = cut(matting, tmp_path, film, background="#2040c0", size=128)
    with av.open(str(product.files[0].path)) as made:
        frame = next(made.decode(video=0))
        assert frame.format.name == "yuv420p"
        corner = frame.to_ndarray(format="rgb24")[2, 2].astype(int)
    assert (frame.width, frame.height) == (128, 128)
    assert np.abs(corner - (0x20, 0x40, 0xC0)).max() < 12


def test_a_film_that_is_too_long_to_be_cut_out_is_refused_before_it_is_decoded(
    matting: Matting, tmp_path: Path
) -> None:
    path = tmp_path / "long.mp4"
    run_ffmpeg(
        *("-loglevel", "error", "-f", "lavfi", "-i", "color=red:s=64x64:r=25:d=120"),
        *("-c:v", "libx264", "-preset", "ultrafast", str(path)),
    )
    with pytest.raises(InputError, match="at most 1800") as error:
        cut(matting, tmp_path, path)
    assert error.value.error_class is FailureClass.TOO_LONG


def test_a_film_in_which_nothing_stands_out_is_refused(matting: Matting, tmp_path: Path) -> None:
    path = tmp_path / "flat.mp4"
    run_ffmpeg(
        *("-loglevel", "error", "-f", "lavfi", "-i", "color=gray:s=64x64:r=5:d=1"),
        *("-c:v", "libx264", str(path)),
    )
    with pytest.raises(InputError) as error:
        cut(matting, tmp_path, path)
    assert error.value.reason == "no_subject"


def test_sound_alone_is_no_film(matting: Matting, tmp_path: Path) -> None:
    path = tmp_path / "tone.m4a"
    run_ffmpeg(
        *("-loglevel", "error", "-f", "lavfi", "-i", "sine=duration=1", "-c:a", "aac", str(path))
    )
    with pytest.raises(InputError) as error:
        cut(matting, tmp_path, path)
    assert error.value.reason == "no_video"


def test_half_a_film_is_told_as_half_a_film(film: Path, matting: Matting, tmp_path: Path) -> None:
    path = tmp_path / "half.mp4"
    path.write_bytes(film.read_bytes()[: film.stat().st_size * 7 // 10])
    with pytest.raises(InputError) as error:
        cut(matting, tmp_path, path)
    assert error.value.reason == "truncated"
