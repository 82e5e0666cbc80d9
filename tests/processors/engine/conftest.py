"""An installation of the toy on the shared stack."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from cutlog.stack import LocalStack
from tests.processors.engine.installation import Installation


@pytest.fixture
async def toy(stack: LocalStack, tmp_path: Path) -> AsyncIterator[Installation]:
    installation = Installation(stack.environ()["CUTLOG_KAFKA_BROKERS"], tmp_path)
    await installation.create()
    yield installation
    installation.close()
