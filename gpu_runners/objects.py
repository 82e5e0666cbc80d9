"""The object store as an attempt needs it: failures sorted into "again later" and "not there"."""

from pathlib import Path

from gpu_runners.attempts import MissingObjectError, Stored, StoreError
from schema.wires.objects import ObjectMissingError, ObjectStore, ObjectStoreUnavailableError


class AttemptStore:
    """Fetches materials, keeps results."""

    def __init__(self, objects: ObjectStore) -> None:
        self._objects = objects

    async def fetch(self, key: str, path: Path) -> None:
        """Download an object; raises StoreError or MissingObjectError."""
        try:
            await self._objects.get_file(key, path)
        except ObjectMissingError as error:
            raise MissingObjectError("The material is not in the store.") from error
        except ObjectStoreUnavailableError as error:
            raise StoreError(str(error)) from error

    async def keep(self, key: str, path: Path, content_type: str) -> Stored:
        """Upload a file, then ask the store what it has; raises StoreError."""
        try:
            written = await self._objects.put_file(key, path, content_type=content_type)
            kept = await self._objects.head(key)
        except (ObjectMissingError, ObjectStoreUnavailableError) as error:  # missing: the bucket
            raise StoreError(str(error)) from error
        if kept is None or kept.size != written.size:
            raise StoreError(f"{key} was written, but the store does not show it whole")
        return written
