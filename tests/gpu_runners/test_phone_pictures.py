"""Pictures of phones, as each scene reads them: as people see them, once turned, in sRGB."""

import io
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from PIL import Image

from gpu_runners.pipelines.genai.pictures import is_picture, open_picture
from gpu_runners.pipelines.matting.stills import open_still, read
from gpu_runners.pipelines.pictures import decode_about, opened
from gpu_runners.pipelines.pipeline import InputError, InputReason
from gpu_runners.pipelines.probe_limits import ProbeLimits
from gpu_runners.pipelines.smart.pictures import open_photo, photo_format
from tests.gpu_runners import phones
from tests.gpu_runners.phones import CORNERS, DISPLAY_P3, RED_IN_P3, SIZE, corners

pytestmark = pytest.mark.media

ROOT = Path(__file__).parents[2]
Colours = npt.NDArray[np.uint8]
Reader = Callable[[Path], Colours]
RED, GREEN, BLUE, GREY = CORNERS
LYING = (RED, GREEN, BLUE, GREY)
QUARTER_CLOCKWISE = (BLUE, RED, GREY, GREEN)
_APART_MAX = 12


def _matting(path: Path) -> Colours:
    still = open_still(path, ProbeLimits())
    assert still
    with still.image:
        return read(still).colours


def _smart(path: Path) -> Colours:
    kind = photo_format(path)
    assert kind
    photo = open_photo(path, kind)
    white = Image.new("RGB", photo.picture.size, "white")
    white.paste(photo.picture, mask=photo.picture if photo.has_alpha else None)
    told, shown = photo.width / photo.height, photo.picture.width / photo.picture.height
    assert told == pytest.approx(shown, rel=0.01)
    return np.asarray(white)


def _genai(path: Path) -> Colours:
    assert is_picture(path)
    return np.asarray(open_picture(path))


@pytest.fixture(params=[_matting, _smart, _genai], ids=["matting", "smart", "genai"])
def reader(request: pytest.FixtureRequest) -> Reader:
    found: Reader = request.param
    return found


def seen(colours: Colours) -> tuple[str, ...]:
    """The names of its corners: left above, right above, left below, right below."""
    height, width = colours.shape[:2]
    names: list[str] = []
    for y in (height // 4, height - height // 4):
        for x in (width // 4, width - width // 4):
            apart = {
                name: int(np.abs(colours[y, x].astype(int) - colour).max())
                for name, colour in CORNERS.items()
            }
            names.append(min(apart, key=lambda name: apart[name]))
    return tuple(names)


def written(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


@pytest.mark.parametrize(
    ("content", "corners_seen", "size"),
    [
        (phones.upright_iphone, QUARTER_CLOCKWISE, SIZE[::-1]),
        (phones.selfie, (RED, BLUE, GREEN, GREY), SIZE[::-1]),
        (phones.iphone, LYING, SIZE),  # EXIF alone turns no HEIC: its own properties do
        (phones.burst, LYING, SIZE),
        (phones.tone_mapped, LYING, SIZE),
        (phones.odd_notes, LYING, SIZE),
        (lambda: phones.encoded(corners()), LYING, SIZE),
        (lambda: phones.ten_bit(corners()), LYING, SIZE),
        (lambda: phones.iphone(brand=b"mif1"), LYING, SIZE),
    ],
    ids=[
        "upright",
        "selfie",
        "exif-alone",
        "burst",
        "tone-mapped",
        "odd-notes",
        "plain",
        "ten-bit",
        "mif1",
    ],
)
def test_a_heic_is_read_as_it_is_meant_and_turned_once(
    content: Callable[[], bytes],
    corners_seen: tuple[str, ...],
    size: tuple[int, int],
    reader: Reader,
    tmp_path: Path,
) -> None:
    # What a file is called plays no part: phones and messengers rename them.
    for name in ("photo.heic", "photo.jpg"):
        colours = reader(written(tmp_path / name, content()))
        assert colours.shape == (size[1], size[0], 3)
        assert seen(colours) == corners_seen


def test_a_jpeg_that_is_called_heic_is_a_jpeg(reader: Reader, tmp_path: Path) -> None:
    out = io.BytesIO()
    corners().save(out, "JPEG", quality=95)
    assert seen(reader(written(tmp_path / "photo.heic", out.getvalue()))) == LYING


def test_through_the_alpha_of_a_heic_nothing_hidden_shows(reader: Reader, tmp_path: Path) -> None:
    image = corners(mode="RGBA")
    image.paste((255, 0, 255, 0), (0, 0, SIZE[0] // 2, SIZE[1]))
    colours = reader(written(tmp_path / "cut.heic", phones.encoded(image)))
    assert colours[30, 20].min() >= 255 - _APART_MAX  # white, not magenta
    assert np.abs(colours[30, 150].astype(int) - CORNERS[GREEN]).max() <= _APART_MAX


@pytest.mark.parametrize("ending", ["heic", "jpg", "png", "avif", "webp", "tif"])
def test_display_p3_becomes_srgb(ending: str, reader: Reader, tmp_path: Path) -> None:
    path = tmp_path / f"red.{ending}"
    if ending == "heic":
        image = Image.new("RGB", (64, 64), RED_IN_P3)
        image.info["icc_profile"] = DISPLAY_P3
        path.write_bytes(phones.encoded(image))
    else:
        Image.new("RGB", (64, 64), RED_IN_P3).save(path, icc_profile=DISPLAY_P3)
    assert np.abs(reader(path)[32, 32].astype(int) - (255, 0, 0)).max() <= _APART_MAX


@pytest.mark.parametrize(
    ("signal", "primaries", "transfer", "wanted"),
    [
        (RED_IN_P3, 12, 13, (255, 0, 0)),
        ((117, 251, 76), 12, 1, (0, 255, 0)),  # sRGB's green
        ((120, 90, 60), 1, 13, (120, 90, 60)),
        ((120, 90, 60), 2, 2, (120, 90, 60)),
        ((104, 104, 104), 9, 16, (118, 118, 118)),  # PQ: a grey of 18 % of 203 nits
        ((111, 111, 111), 9, 18, (118, 118, 118)),  # HLG: the same, by its system gamma
        ((255, 255, 255), 9, 18, (255, 255, 255)),
    ],
)
def test_numbers_mean_colours_where_there_is_no_profile(
    signal: tuple[int, int, int],
    primaries: int,
    transfer: int,
    wanted: tuple[int, int, int],
    reader: Reader,
    tmp_path: Path,
) -> None:
    path = written(tmp_path / "a.heic", phones.with_numbers(signal, primaries, transfer))
    assert np.abs(reader(path)[32, 32].astype(int) - wanted).max() <= _APART_MAX


@pytest.mark.parametrize("ending", ["jpg", "png", "webp", "avif", "tif"])
@pytest.mark.parametrize("orientation", range(1, 9))
def test_exif_turns_every_other_kind_once(
    orientation: int, ending: str, reader: Reader, tmp_path: Path
) -> None:
    notes = Image.Exif()
    notes[0x0112] = orientation
    path = tmp_path / f"turned.{ending}"
    corners().save(path, exif=notes)
    turn = {
        1: LYING,
        2: (GREEN, RED, GREY, BLUE),
        3: (GREY, BLUE, GREEN, RED),
        4: (BLUE, GREY, RED, GREEN),
        5: (RED, BLUE, GREEN, GREY),
        6: QUARTER_CLOCKWISE,
        7: (GREY, GREEN, BLUE, RED),
        8: (GREEN, GREY, RED, BLUE),
    }
    assert seen(reader(path)) == turn[orientation]


def test_a_gain_map_and_a_film_behind_a_jpeg_are_left_alone(reader: Reader, tmp_path: Path) -> None:
    for film in (b"", b"\0\0\0\x18ftypmp42" + bytes(4096)):
        path = written(tmp_path / "ultra.jpg", phones.gain_mapped_jpeg(film))
        colours = reader(path)
        assert colours.shape == (SIZE[1], SIZE[0], 3)
        assert seen(colours) == LYING


def test_a_jpeg_with_many_notes_is_read_and_turned(reader: Reader, tmp_path: Path) -> None:
    path = written(tmp_path / "portrait.jpg", phones.noted_jpeg())
    assert seen(reader(path)) == QUARTER_CLOCKWISE


@pytest.mark.parametrize("alpha", [False, True])
def test_a_screenshot_of_sixteen_bits_keeps_its_colours(
    alpha: bool,  # noqa: FBT001 - a parameter of the test
    reader: Reader,
    tmp_path: Path,
) -> None:
    phones.deep_png(tmp_path / "deep.png", alpha=alpha)
    assert np.abs(reader(tmp_path / "deep.png").astype(int) - np.asarray(corners())).max() <= 1


@pytest.mark.parametrize(("kind", "size"), [("JPEG", (8064, 6048)), ("PNG", (8160, 6120))])
def test_fifty_million_pixels_are_taken(
    kind: str, size: tuple[int, int], reader: Reader, tmp_path: Path
) -> None:
    path = tmp_path / "large"
    corners((size[0] // 4, size[1] // 4)).resize(size, Image.Resampling.NEAREST).save(path, kind)
    assert seen(reader(path)) == LYING


def test_beyond_fifty_millions_a_cut_out_is_smaller(tmp_path: Path) -> None:
    path = tmp_path / "larger.png"
    Image.new("L", (12_000, 9_000), 77).save(path)
    assert _matting(path).shape == (4_500, 6_000, 3)


@pytest.mark.parametrize("far", [False, True])
def test_a_raw_photo_is_refused_with_what_to_do_instead(
    far: bool,  # noqa: FBT001 - a parameter of the test
    reader: Reader,
    tmp_path: Path,
) -> None:
    path = written(tmp_path / "raw.dng", phones.dng(far=far))
    with pytest.raises(InputError, match=r"raw photo.*JPEG or HEIC.*ProRAW") as refused:
        reader(path)
    assert refused.value.reason == InputReason.UNSUPPORTED


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (phones.without_meta, InputReason.DAMAGED),
        (phones.lying, InputReason.DAMAGED),
        (phones.too_large, InputReason.TOO_LARGE),
        (phones.other_coding, InputReason.UNSUPPORTED),
        (lambda: phones.iphone(tiles=4), InputReason.DAMAGED),
        (lambda: phones.iphone()[:2000], InputReason.TRUNCATED),
    ],
    ids=["no-meta", "lying", "too-large", "other-coding", "tiles-missing", "cut-short"],
)
def test_a_heic_that_is_not_whole_is_refused_in_its_own_words(
    content: Callable[[], bytes], reason: InputReason, reader: Reader, tmp_path: Path
) -> None:
    path = written(tmp_path / "photo.heic", content())
    with pytest.raises(InputError) as refused:
        reader(path)
    assert refused.value.reason == reason


PLAIN_USER = """
import os, sys, threading
from pathlib import Path
from gpu_runners.pipelines.pictures import load_readers, opened
from gpu_runners.probing.limits import ProcessLimits
from gpu_runners.probing.seal import seal

source, folder = (Path(one) for one in sys.argv[1:])
load_readers()
if os.getuid() == 0:
    os.setgid(65534)
    os.setuid(65534)
missing = seal(source, folder, ProcessLimits(file_bytes=1000, memory_bytes=1 << 30))
if "network namespace" in missing:
    print("missing", *missing)
    sys.exit()
picture = opened(source, "heic")
print(picture.size, *picture.decode())
waiting, count = threading.Event(), 0
try:
    while count < 100:
        threading.Thread(target=waiting.wait, daemon=True).start()
        count += 1
except RuntimeError:
    print("few" if count < 10 else count)
waiting.set()
"""


def test_a_plain_users_sealed_process_reads_tiles_and_has_few_threads() -> None:
    """Its decoder insists on a thread of its own; that a user runs much else is no matter."""
    with tempfile.TemporaryDirectory(dir="/tmp") as name:
        folder = Path(name)
        folder.chmod(0o755)
        own = folder / "own"
        own.mkdir(mode=0o777)
        source = written(folder / "photo.heic", phones.upright_iphone())
        done = subprocess.run(
            [sys.executable, "-B", "-c", PLAIN_USER, str(source), str(own)],
            cwd=ROOT,
            env={"PATH": os.defpath},
            capture_output=True,
            text=True,
            check=True,
        )
    if done.stdout.startswith("missing"):
        pytest.skip(f"this kernel has no {done.stdout}")
    assert done.stdout.split("\n")[:2] == ["(120, 180) 120 180 False", "few"]


def test_a_jpeg_that_is_made_smaller_is_never_decoded_whole(tmp_path: Path) -> None:
    path = tmp_path / "larger.jpg"
    corners((2_000, 1_500)).resize((16_000, 12_000), Image.Resampling.NEAREST).save(path)
    with opened(path, "jpeg") as image:
        decode_about(image, 8_000)
        assert image.size == (8_000, 6_000)
    assert seen(_matting(path)) == LYING
