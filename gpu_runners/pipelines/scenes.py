"""Which pipeline does which scene. Imports are late: a worker pays for its own scenes only."""

from gpu_runners.pipelines.pipeline import Pipeline
from gpu_runners.pipelines.probe_limits import ProbeLimits
from schema.words import Scene


def pipeline_for(scene: Scene, limits: ProbeLimits) -> Pipeline:
    """Build the pipeline of a scene. Errors: LookupError, if no pipeline does it yet."""
    match scene:
        case Scene.AUTOCUT:
            from gpu_runners.pipelines.autocut import Autocut  # noqa: PLC0415 - late on purpose

            return Autocut(limits)
        case Scene.REHEARSAL:
            from gpu_runners.pipelines.rehearsal import Rehearsal  # noqa: PLC0415

            return Rehearsal()
        case Scene.SMART | Scene.GENAI | Scene.MATTING:
            raise LookupError(f"No pipeline does the scene {scene} yet.")
