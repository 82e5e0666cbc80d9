"""Features of a source that does not exist, for tests of the arithmetic of an edit."""

from fractions import Fraction

import numpy as np

from gpu_runners.pipelines.analysis import Analysis


def made_up_analysis(seconds: float, rate: Fraction, seed: int = 7) -> Analysis:
    """Random features of a steady source with sound all through."""
    random = np.random.default_rng(seed)
    frames = max(2, int(seconds * rate))

    def feature(top: float) -> np.ndarray:
        return (random.random(frames) * top).astype(np.float32)

    return Analysis(
        instants=np.arange(frames) / float(rate),
        seconds=frames / float(rate),
        rotation=0,
        interlaced=False,
        change=feature(5),
        luma=feature(255),
        contrast=feature(60),
        spread=128 + feature(127),
        sharpness=feature(500),
        colour=feature(40),
        motion_x=feature(1),
        motion_y=feature(1),
        motion=feature(1),
        detail_x=feature(1),
        detail_y=feature(1),
        audio_index=1,
        peak=np.ones(int(seconds * 100), dtype=np.float32),
        power=random.random(int(seconds * 100)).astype(np.float32),
        damaged_packets=0,
    )
