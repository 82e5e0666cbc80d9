"""The local stack: the real Kafka, Postgres, Valkey and S3, from packages, without root or Docker.

`LocalStack(Path(".cutlog")).start()` brings them up on free ports of 127.0.0.1; `environ()` tells
where they are, in the words of our settings.
"""

from cutlog.stack.part import PartError
from cutlog.stack.stack import PART_NAMES, LocalStack, PartName

__all__ = ["PART_NAMES", "LocalStack", "PartError", "PartName"]
