"""Which pipeline does which scene. Imports are late: a worker pays for its own scenes only."""

from pathlib import Path
from typing import Final

from gpu_runners.pipelines.pipeline import Pipeline
from gpu_runners.worker_messages import WorkerOptions
from schema.words import Scene

RESUMABLE: Final = frozenset({Scene.GENAI, Scene.REHEARSAL})
"""Scenes whose work can be saved: known before their pipelines are there."""
_ROOT = Path(__file__).parents[2]


def pipeline_for(scene: Scene, options: WorkerOptions) -> Pipeline:
    """Build the pipeline of a scene."""
    models = _ROOT / options.models_directory
    match scene:
        case Scene.AUTOCUT:
            from gpu_runners.pipelines.autocut import Autocut  # noqa: PLC0415 - late on purpose

            return Autocut(options.limits, models)
        case Scene.SMART:
            from gpu_runners.pipelines.smart import Smart  # noqa: PLC0415

            return Smart(options.limits, models)
        case Scene.GENAI:
            from gpu_runners.pipelines.genai import Genai  # noqa: PLC0415

            return Genai(options.limits, options.diffusion_model)
        case Scene.MATTING:
            from gpu_runners.pipelines.matting import Matting  # noqa: PLC0415

            return Matting(options.limits, models)
        case Scene.REHEARSAL:
            from gpu_runners.pipelines.rehearsal import Rehearsal  # noqa: PLC0415

            return Rehearsal()
