"""Starting a client: in time or not at all, and nothing of it stays open if it is not."""

import asyncio
import traceback
from collections.abc import Awaitable, Callable

from aiokafka.errors import KafkaError

from schema.wires.log.places import LogUnavailableError, Untyped


async def start(client: Untyped, seconds: float, close: Callable[[], Awaitable[None]]) -> None:
    """Connect a client, or `close` it; raises LogUnavailableError when no broker answers in time.

    Whoever cancels this closes it too.
    """
    try:
        async with asyncio.timeout(seconds):
            await client.start()
    except (KafkaError, TimeoutError, OSError) as error:
        _close_forgotten(error)
        await close()
        raise LogUnavailableError(f"no broker answers: {error!r}") from error
    except asyncio.CancelledError as error:
        _close_forgotten(error)
        await close()
        raise


def _close_forgotten(error: BaseException | None) -> None:
    """Close the connection that aiokafka asks for the brokers.

    Interrupted there, it forgets it: only the frame that was interrupted still knows it.
    """
    while error is not None:
        for frame, _ in traceback.walk_tb(error.__traceback__):
            connection = frame.f_locals.get("bootstrap_conn")
            if connection is not None:
                connection.close()
        error = error.__cause__ or error.__context__
