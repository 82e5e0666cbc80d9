"""One local stack for a whole run of pytest, started when the first test wants it.

It lies in a temporary folder on free ports and can't outlive the run: a watcher ends it when
pytest is gone, however it went.
"""

import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from cutlog.stack import LocalStack


@contextmanager
def running_stack() -> Generator[LocalStack]:
    """A started stack; its data go with it."""
    with tempfile.TemporaryDirectory(prefix="cutlog-") as folder:
        stack = LocalStack(Path(folder) / "stack", die_with_parent=True)
        try:
            stack.start()
            yield stack
        finally:
            stack.stop()
