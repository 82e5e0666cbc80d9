"""Every scene has its pipeline, and what is said of it before it is built is true of it."""

import pytest

from gpu_runners.pipelines.pipeline import Resumable
from gpu_runners.pipelines.scenes import RESUMABLE, pipeline_for
from gpu_runners.worker_messages import WorkerOptions
from schema.words import Scene


@pytest.mark.media
@pytest.mark.parametrize("scene", Scene)
def test_a_pipeline_does_its_scene_and_can_be_saved_as_told(scene: Scene) -> None:
    pipeline = pipeline_for(scene, WorkerOptions())
    assert pipeline.scene == scene.value
    assert isinstance(pipeline, Resumable) == (scene in RESUMABLE)
