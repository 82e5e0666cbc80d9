"""`python -m gpu_runners.probing.child`: looks at one file, shut in, and says what it is.

One line of JSON in (`Asked`), one out (`Verdict`). Everything that it needs is loaded before it is
shut in; the stranger's file is opened after.
"""

import importlib
import os
import pkgutil
import sys
import warnings
from pathlib import Path

import av
import av.logging
import msgspec

from gpu_runners.pipelines.pictures import load_readers
from gpu_runners.probing.seal import seal
from gpu_runners.probing.validation import validate
from gpu_runners.probing.verdicts import Asked, RefusedError, Verdict
from schema.refusals import MaterialRefusal

_UNREADABLE = "The file is made so that it can't be read in reasonable memory."
_FAULT_MAX = 500
_BROKEN = "The file is damaged so that it can't be read."


def judge(asked: Asked) -> Verdict:
    """The verdict on a file; whatever a reader raises on it is one."""
    try:
        return Verdict(facts=validate(asked))
    except RefusedError as refused:
        return Verdict(reason=refused.reason, detail=refused.detail)
    except (MemoryError, RecursionError):
        return Verdict(reason=MaterialRefusal.PROBE_LIMIT, detail=_UNREADABLE)
    except Exception as error:  # noqa: BLE001 - no reader foresees all that bytes can be
        fault = f"{type(error).__name__}: {error}"
        return Verdict(reason=MaterialRefusal.DAMAGED, detail=_BROKEN, fault=fault[:_FAULT_MAX])


def main() -> int:
    """Hear, load, be shut in, look, tell."""
    asked = msgspec.json.decode(sys.stdin.buffer.readline(), type=Asked)
    av.logging.set_level(None)
    _load_all_of_av()
    load_readers()
    warnings.simplefilter("ignore")  # of readers, on odd metadata: nobody reads them
    answers = os.dup(1)
    os.dup2(2, 1)  # whatever a library prints is no answer
    os.chdir(asked.folder)
    missing = seal(Path(asked.path), Path(asked.folder), asked.process)
    verdict = msgspec.structs.replace(judge(asked), unsealed=missing)
    os.write(answers, msgspec.json.encode(verdict) + b"\n")
    return 0


def _load_all_of_av() -> None:
    """It loads some of its modules when they are used first, and then there are no files left."""
    for module in pkgutil.walk_packages(av.__path__, "av."):
        if module.name != "av.__main__":
            importlib.import_module(module.name)


if __name__ == "__main__":
    sys.exit(main())
