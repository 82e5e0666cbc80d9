"""One task of the scene `matting` in a fresh process: `python -m tests.benchmarks.matting.ours`."""

import sys
from pathlib import Path

from gpu_runners.pipelines.matting import Matting
from gpu_runners.pipelines.pipeline import Work

MODELS = Path(__file__).parents[3] / ".cutlog" / "models"


def main(source: str, out: str, refine: str) -> int:
    """Cut out every picture of a folder. Exit code 1, if one of them failed."""
    work = Work(
        task_id="benchmark",
        token=1,
        scene="matting",
        parameters={"refine": refine == "refined"},
        inputs={path.stem: path for path in sorted(Path(source).glob("*.png"))},
        directory=Path(out),
    )
    product = Matting(models_directory=MODELS).run(work, lambda _: None)
    return int(product.facts["failed"] > 0)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
