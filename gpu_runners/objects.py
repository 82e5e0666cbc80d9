"""The object store as an attempt needs it: failures sorted into "again later" and "not there".

One bucket may be reached over several endpoints; what the first does not do, the next is asked for.
One that failed is asked last from then on: a result of many files waits for it once, not each time.
"""

from pathlib import Path

from gpu_runners.attempts import MissingObjectError
from gpu_runners.storing import Stored, StoreError
from schema.wires.objects import ObjectMissingError, ObjectStore, ObjectStoreUnavailableError


class AttemptStore:
    """Fetches materials, keeps results."""

    def __init__(self, objects: ObjectStore, *others: ObjectStore) -> None:
        self._endpoints: tuple[ObjectStore, ...] = (objects, *others)

    async def fetch(self, key: str, path: Path) -> None:
        """Download an object; raises StoreError or MissingObjectError."""
        failure: ObjectStoreUnavailableError | None = None
        for objects in self._endpoints:
            try:
                await objects.get_file(key, path)
            except ObjectMissingError as error:
                raise MissingObjectError("The material is not in the store.") from error
            except ObjectStoreUnavailableError as error:
                failure = error
                self._ask_last(objects)
            else:
                return
        raise StoreError(str(failure)) from failure

    async def keep(self, key: str, path: Path, content_type: str) -> Stored:
        """Upload a file, then ask the store what it has; raises StoreError."""
        failure: StoreError | None = None
        for objects in self._endpoints:
            try:
                return await _keep(objects, key, path, content_type)
            except StoreError as error:
                failure = error
                self._ask_last(objects)
        raise StoreError(str(failure)) from failure

    def _ask_last(self, failed: ObjectStore) -> None:
        others = [one for one in self._endpoints if one is not failed]
        self._endpoints = (*others, failed)


async def _keep(objects: ObjectStore, key: str, path: Path, content_type: str) -> Stored:
    try:
        written = await objects.put_file(key, path, content_type=content_type)
        kept = await objects.head(key)
    except (ObjectMissingError, ObjectStoreUnavailableError) as error:  # missing: the bucket
        raise StoreError(str(error)) from error
    if kept is None or (kept.size, kept.sha256) != (written.size, written.sha256):
        raise StoreError(f"{key} was written, but the store does not show it whole")
    return written
