"""How the process ends when it cannot trust Kafka or itself: at once, with one clear line.

Nothing half-done is visible: the open transaction is aborted by the next owner of the partition.
"""

import logging
import os
import sys
from typing import Final, NoReturn

log = logging.getLogger(__name__)

DOUBT: Final = 70
"""A gap, a failed or late transaction, a failed recovery, no progress: start again."""
UNKNOWN_VERSION: Final = 71
"""A message of a newer release: this one must not judge it."""
TOPOLOGY: Final = 78
"""Topics are not as they must be: a person has to look."""


def tell(code: int, reason: str) -> None:
    """The one line, also when nobody has set up logging."""
    if log.hasHandlers():
        log.critical("exit", extra={"code": code, "reason": reason})
    else:
        sys.stderr.write(f"exit {code}: {reason}\n")
        sys.stderr.flush()


def leave(code: int, reason: str) -> NoReturn:
    """End the process now; no destructor, no `finally` elsewhere runs."""
    try:
        tell(code, reason)
        logging.shutdown()
    finally:
        os._exit(code)
