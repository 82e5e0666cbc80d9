"""Commands to the log, and the wait for their answers: one append and one answer a request.

Within `reply_timeout_seconds` there is an answer, or the word that the command stands in the log
and its answer is on the way (None), or a 503: then it may stand there or not, and the same
request again is the same command.
"""

import asyncio
import logging
from typing import Any

import msgspec

from api.problems import Door, at_the_door
from api.replies import Answers
from schema.codec import encode
from schema.ids import CommandId
from schema.replies import ReplyMessage
from schema.routes import Route
from schema.settings import Kafka
from schema.wires.log import LogUnavailableError, LogWriter, MessageTooLongError, Place
from schema.wires.telemetry import facts

_RECONNECT_SECONDS = 0.5
_log = logging.getLogger(__name__)


class Asker:
    """Appends commands and waits for answers."""

    def __init__(
        self, kafka: Kafka, answers: Answers, *, reply_partition: int, timeout_seconds: float
    ) -> None:
        # An append that is not confirmed while its caller waits is of no use to him.
        kafka = msgspec.structs.replace(
            kafka, request_timeout_seconds=min(kafka.request_timeout_seconds, timeout_seconds)
        )
        self._writer = LogWriter(kafka, client_id="cutlog-api")
        self._answers = answers
        self._timeout = timeout_seconds
        self.reply_partition = reply_partition
        self.partitions = kafka.partitions
        self.open = False

    async def connect(self) -> None:
        """Connect, trying until it works; later outages the writer gets over by itself."""
        while not self.open:
            try:
                await self._writer.start()
                self.open = True
            except LogUnavailableError as error:
                _log.warning("the log is away", extra=facts(error=str(error)))
                await asyncio.sleep(_RECONNECT_SECONDS)

    async def close(self) -> None:
        """Send what waits, then close."""
        self.open = False
        await self._writer.stop()

    def check(self, route: Route) -> None:
        """Raises Problem (503) when the partition of this route owes too many answers."""
        self._answers.check(Place(route.topic.value, route.partition))

    async def ask(
        self,
        command: Any,  # noqa: ANN401 - any command with a reply_to
        route: Route,
        *,
        fingerprint: str = "",
    ) -> ReplyMessage | None:
        """Append a command and wait for its answer; None: it is on its way.

        Raises Problem (503) when the log did not take it, or did not say so in time.
        """
        claim = self._answers.expect(
            command.command_id, Place(route.topic.value, route.partition), fingerprint
        )
        appended = not claim.first
        try:
            async with asyncio.timeout(self._timeout):
                if claim.first:
                    await self._writer.append(route, encode(command))
                    appended = True
                return await claim.future
        except TimeoutError:
            if appended:
                return None
            error = LogUnavailableError("not confirmed in time", in_doubt=True)
            self._answers.forget(claim, error)
            raise at_the_door(Door.LOG_AWAY) from None
        except LogUnavailableError as error:
            self._answers.forget(claim, error)
            raise _away(error) from error
        except MessageTooLongError as error:
            self._answers.forget(claim, LogUnavailableError(str(error)))
            raise at_the_door(Door.BODY_TOO_LARGE) from error
        finally:
            self._answers.leave(claim)

    def is_under_way(self, command_id: CommandId) -> bool:
        """Whether this instance asked for the command and has not been answered yet."""
        return self._answers.is_under_way(command_id)

    async def tell(self, command: Any, route: Route) -> None:  # noqa: ANN401 - any command
        """Append a command that nobody answers; raises Problem (503, 413) as `ask` does."""
        try:
            async with asyncio.timeout(self._timeout):
                await self._writer.append(route, encode(command))
        except (LogUnavailableError, TimeoutError) as error:
            raise at_the_door(Door.LOG_AWAY) from error
        except MessageTooLongError as error:
            raise at_the_door(Door.BODY_TOO_LARGE, f"The command would be {error}.") from error

    async def settle(self, command_id: CommandId, fingerprint: str) -> None:
        """Wait (as long as for an answer) while the same command is under way with another body.

        Answers are told apart by their command alone, so the two must not be asked at once.
        """
        rival = self._answers.rival(command_id, fingerprint)
        if rival is None:
            return
        try:
            async with asyncio.timeout(self._timeout):
                await rival.future
        except (TimeoutError, LogUnavailableError):
            return  # its own request hears of it
        finally:
            self._answers.leave(rival)


def _away(error: LogUnavailableError) -> Exception:
    detail = "" if error.in_doubt else "It was not taken."
    return at_the_door(Door.LOG_AWAY, detail)
