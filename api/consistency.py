"""Consistency tokens: a caller shows what it was answered, so that a read is never older than that.

`<task id>.<seq>.<mac>`; the MAC keeps anyone from making a GET wait for what was never promised.
"""

import hmac
from base64 import urlsafe_b64encode
from hashlib import sha256
from typing import NamedTuple

from schema.ids import TASK_ID_LENGTH, TaskId

HEADER = "cutlog-consistency"
_MAC_BYTES = 12
_SEQ_DIGITS_MAX = 12
_PARTS = 3


class BadConsistencyTokenError(ValueError):
    """Not a token of this installation."""


class Promise(NamedTuple):
    """What an answer said: the task stands at `seq` or later (0: it was asked for, no more)."""

    task_id: TaskId
    seq: int


class ConsistencyTokens:
    """Signs and reads tokens with the installation's secret."""

    def __init__(self, secret: str) -> None:
        self._secret = secret.encode()

    def sign(self, task_id: TaskId, seq: int) -> str:
        text = f"{task_id}.{seq}"
        return f"{text}.{self._mac(text)}"

    def read(self, token: str) -> Promise:
        """The promise; raises BadConsistencyTokenError."""
        parts = token.split(".")
        if len(parts) != _PARTS or not token.isascii():
            raise BadConsistencyTokenError(token)
        task_id, seq, mac = parts
        if (
            len(task_id) != TASK_ID_LENGTH
            or not seq.isdigit()
            or len(seq) > _SEQ_DIGITS_MAX
            or not hmac.compare_digest(mac, self._mac(f"{task_id}.{seq}"))
        ):
            raise BadConsistencyTokenError(token)
        return Promise(TaskId(task_id), int(seq))

    def _mac(self, text: str) -> str:
        digest = hmac.digest(self._secret, text.encode(), sha256)
        return urlsafe_b64encode(digest[:_MAC_BYTES]).decode()
