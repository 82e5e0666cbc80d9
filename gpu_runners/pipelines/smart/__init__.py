"""Templates: photos, clips, words and music become a film that is cut on the beat."""

from gpu_runners.pipelines.smart.film import Smart

__all__ = ["Smart"]
