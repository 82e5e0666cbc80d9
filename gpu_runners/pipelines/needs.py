"""What a scene needs on a runner beside its code: libraries and model files, looked for cheaply.

Looked at before work is taken, so that whoever set the runner up learns of it, and not the first
user; nothing is imported or loaded for it.
"""

from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from gpu_runners.worker_messages import WorkerOptions
from schema.words import Scene

DIFFUSION_LIBRARIES: Final = ("torch", "diffusers", "transformers", "safetensors")
CUT_OUT_MODEL: Final = "u2netp.onnx"
_ROOT: Final = Path(__file__).parents[2]


def _is_installed(library: str) -> bool:
    return find_spec(library) is not None


def lacking(
    scene: Scene,
    options: WorkerOptions,
    is_installed: Callable[[str], bool] = _is_installed,
) -> str | None:
    """What such a runner lacks for a scene and what brings it; None: nothing that can be seen."""
    match scene:
        case Scene.GENAI:
            away = [name for name in DIFFUSION_LIBRARIES if not is_installed(name)]
            if away:
                return f"not installed: {', '.join(away)}; `make setup-diffusion` brings them"
            folder = options.diffusion_model
            if folder and not (_ROOT / folder / "model_index.json").is_file():
                return f"CUTLOG_RUNNER_DIFFUSION_MODEL: {folder} is no folder of a pipeline"
        case Scene.MATTING:
            models = _ROOT / options.models_directory
            if not (models / CUT_OUT_MODEL).is_file():
                return (
                    f"CUTLOG_RUNNER_MODELS_DIRECTORY: {models} has no {CUT_OUT_MODEL}; "
                    "`make setup` brings it"
                )
        case Scene.AUTOCUT | Scene.SMART | Scene.REHEARSAL:
            pass
    return None
