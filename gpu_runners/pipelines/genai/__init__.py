"""The scene `genai`: pictures and stylised clips by a diffusion model, kept and gone on with."""

from gpu_runners.pipelines.genai.scene import Genai

__all__ = ["Genai"]
