"""The clips and pictures that are used, fetched once."""

from pathlib import Path

from cutlog.ffmpeg import run_ffmpeg
from cutlog.wheels import bring
from tests.gallery.orders import MONTAGE, PHOTOS, SHORT
from tests.support.clips import montage, samples

_PICTURES = Path(__file__).parents[2] / ".cutlog" / "pictures"


def material(directory: Path) -> dict[str, Path]:
    """Every file by its name; those that are made go into that directory."""
    directory.mkdir(parents=True, exist_ok=True)
    found = {path.name: path for path in (*samples(), *pictures())}
    found[MONTAGE] = directory / MONTAGE
    montage(found[MONTAGE])
    found[SHORT] = directory / SHORT
    head = found["carphone_pristine.mp4"]
    run_ffmpeg("-loglevel", "error", "-y", "-i", str(head), "-t", "1", "-an", str(found[SHORT]))
    return found


def pictures() -> list[Path]:
    """Photographs out of the wheel of scikit-image."""
    _PICTURES.mkdir(parents=True, exist_ok=True)
    found = [_PICTURES / name for name in PHOTOS]
    if not all(path.exists() for path in found):
        bring("pictures.txt", PHOTOS, _PICTURES)
    return found
