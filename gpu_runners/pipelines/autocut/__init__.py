"""The scene `autocut`: one clip in, a short film of its best moments out, and the edit of it."""

from gpu_runners.pipelines.autocut.autocut import Autocut
from gpu_runners.pipelines.autocut.facts import AutocutFacts

__all__ = ["Autocut", "AutocutFacts"]
