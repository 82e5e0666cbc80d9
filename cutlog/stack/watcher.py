"""Ends a stack when its owner is gone, however it went: `python -m cutlog.stack.watcher FOLDER`.

The owner holds the other end of our standard input, and says a word when it has ended the stack
itself. Only the kernel can be trusted to tell of a SIGKILL, and it does so by closing that pipe.
(PR_SET_PDEATHSIG is not used: it follows the thread that started the part, not the process.)
"""

import fcntl
import sys
from pathlib import Path

from cutlog.stack.processes import find_marked, kill


def main(directory: Path) -> None:
    if sys.stdin.buffer.read():
        return  # a word: the owner has ended the stack itself
    # A start holds the lock, and a process that it has just forked holds it until it has become
    # the server (and so can be found); the lock is free when there is nothing half-done.
    with (directory / "stack.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        for process in find_marked(directory).values():
            kill(process)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
