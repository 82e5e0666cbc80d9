"""`python -m projections`: run the projector; or `migrate`, `rebuild [NAME …]`, `schema`.

Exit codes: 0 told to stop, 64 wrong arguments or settings, 65 the log can't be folded (a gap, an
unknown message, another log), 75 another projector took over, 70 any other fault.
"""

import logging
import os
import sys
from collections.abc import Sequence
from typing import Final

import uvloop

from projections import migrations, process
from projections.folding import GapError
from projections.positions import ReadModelError, TakenOverError
from projections.projector import connect
from schema.codec import UnknownVersionError, UnreadableMessageError
from schema.settings import Settings, SettingsError, load, need
from schema.wires.log import OffsetTrimmedError, TopologyError
from schema.wires.processes import collect_rarely
from schema.wires.telemetry import facts, set_up_logging

USAGE: Final = 64
UNFOLDABLE: Final = 65
FAULT: Final = 70
TAKEN_OVER: Final = 75
_log = logging.getLogger("projections")


async def _migrate(settings: Settings) -> None:
    db = await connect(need(settings, "postgres").dsn)
    try:
        applied = await migrations.migrate(db)
        _log.info("migrated", extra=facts(applied=applied))
    finally:
        await db.close()


async def _rebuild(settings: Settings, names: Sequence[str]) -> None:
    db = await connect(need(settings, "postgres").dsn)
    try:
        await process.empty(db, list(names))
        _log.info("emptied, to be folded by the projector", extra=facts(names=list(names)))
    finally:
        await db.close()


async def _schema(settings: Settings) -> None:
    db = await connect(need(settings, "postgres").dsn)
    try:
        sys.stdout.write(await migrations.describe(db))
    finally:
        await db.close()


def main(arguments: Sequence[str]) -> int:
    """Run what the arguments ask for; the exit code."""
    try:
        settings = load(os.environ)
    except SettingsError as error:
        sys.stderr.write(f"{error}\n")
        return USAGE
    set_up_logging("projections", level=settings.process.log_level)
    collect_rarely()
    names = {fold.name for fold in process.all_folds()}
    match list(arguments):
        case []:
            task = process.run(settings)
        case ["migrate"]:
            task = _migrate(settings)
        case ["rebuild", *chosen] if names.issuperset(chosen):
            task = _rebuild(settings, chosen)
        case ["schema"]:
            task = _schema(settings)
        case _:
            sys.stderr.write(f"{__doc__}\nprojections: {', '.join(sorted(names))}\n")
            return USAGE
    try:
        uvloop.run(task)
    except SettingsError as error:
        sys.stderr.write(f"{error}\n")
        return USAGE
    except TakenOverError as error:
        _log.error("another projector took over", extra=facts(error=str(error)))
        return TAKEN_OVER
    except (
        GapError,
        ReadModelError,
        OffsetTrimmedError,
        TopologyError,
        UnknownVersionError,
        UnreadableMessageError,
    ) as error:
        kind = type(error).__name__
        _log.error("the log can't be folded", extra=facts(kind=kind, error=str(error)))
        return UNFOLDABLE
    except Exception:  # noqa: BLE001 - the entry point: whatever it was, say so and end
        _log.exception("the projector failed")
        return FAULT
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
