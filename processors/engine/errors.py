"""Everything that the engine raises."""


class EngineError(Exception):
    """Base of what the engine raises."""


class UnknownVersionError(EngineError):
    """Raised by the rules for a message of a version newer than they are.

    It is not poison: an older release must not judge it, so the process exits at once.
    """


class RecordTooLargeError(EngineError):
    """A record or a row that no Kafka batch of this installation takes: the command is poison."""


class UndeclaredTopicError(EngineError):
    """A record sent to a topic or partition that was not declared as an output."""


class UnencodedRowError(EngineError):
    """An encoder gave something else than bytes."""


class PlainSendForbiddenError(EngineError):
    """Somebody called `topic.send`: that record would be outside of the transaction."""


class GapError(EngineError):
    """A batch does not begin where the last one ended: records were lost, or the source trimmed."""


class StayDownError(EngineError):
    """The code is wrong, not the commands: alive, not ready, no more transactions."""


class TooManyQuarantinesError(StayDownError):
    """More quarantines in a minute than commands could be the cause of."""


class PoisonHandlerError(StayDownError):
    """The rules could not even write down that a command was poison."""


class RecoveryError(EngineError):
    """The changelog or the sources are not what they must be; the message tells what is wrong."""


class TopologyError(EngineError):
    """Topics are missing, have unequal numbers of partitions, or were changed under our feet."""
