"""The object store's wires: S3 by aiobotocore, and the addresses that callers are handed.

Names of objects are made in `schema.objects`. Digests are sha256 of the bytes as they pass, in hex;
an object that we write carries its own as metadata.

Whatever a store does, no call lasts: one that moves too few bytes for too long is over, on the way
out as on the way in, and is an error to try again. A small call is over after that time as a whole.
"""

import asyncio
import hashlib
import io
import socket
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, suppress
from datetime import datetime
from pathlib import Path
from string import ascii_letters, digits
from types import TracebackType
from typing import Any, BinaryIO, Final, NamedTuple, Self
from urllib.parse import quote

import aiobotocore.session
import aiohttp
from aiobotocore.config import AioConfig
from aiohttp.http_exceptions import HttpProcessingError
from botocore.exceptions import BotoCoreError, ClientError
from botocore.parsers import ResponseParserError

from schema.settings import Objects

CHUNK_BYTES: Final = 1 << 20
COPY_SECONDS: Final = 300
"""A store copies gigabytes in one call, and says nothing until it is done."""
COPY_BYTES_MAX: Final = 5_000_000_000
"""Of one call to copy; what is larger is copied in parts of this size."""
PARTS_MAX: Final = 10_000
"""Of one upload."""
MOVED_BYTES_MIN: Final = 16 << 10
"""Of a body, within the time that a call may stand still: less is standing still."""
_BLOCK_BYTES: Final = 64 << 10
"""Read and sent at once, so what is seen of a body that goes out slowly is this fine."""
_UNSENT_BYTES_MAX: Final = 256 << 10
"""Left to the kernel to send, for the same reason; it would take megabytes."""
_CONNECTIONS_MAX: Final = 100
"""More than a process has calls at once: waiting for a connection is standing still too."""
_PLAIN: Final = frozenset(f"{ascii_letters}{digits} -_.()")
_MISSING: Final = frozenset({"404", "NoSuchKey", "NotFound", "NoSuchUpload"})
_PARTS_REFUSED: Final = frozenset({"InvalidPart", "InvalidPartOrder", "EntityTooSmall"})
_AWAY: Final = (
    BotoCoreError,
    OSError,
    TimeoutError,
    aiohttp.ClientError,
    HttpProcessingError,
    ResponseParserError,
)
"""A body that breaks off is the transport's own error: nobody below us turns it into another. What
answers and is no store at all (a proxy's page) can't be parsed."""
Untyped = Any
"""A client of aiobotocore, which is made of its service description at run time."""


class ObjectStoreUnavailableError(Exception):
    """The store did not do it, or did not answer in time; try again later."""


class ObjectMissingError(LookupError):
    """There is no object of that name."""


class PartsRefusedError(ValueError):
    """The parts that were named are not the parts that are stored, or one is too small."""


class StoredPart(NamedTuple):
    """One part of an upload that goes on."""

    number: int
    """From 1."""
    size: int
    etag: str


class StoredObject(NamedTuple):
    """What the store has under a name."""

    key: str
    size: int
    etag: str
    content_type: str
    sha256: str
    """As its writer said; empty where a caller uploaded it (then read it: `digest`)."""


class ListedObject(NamedTuple):
    """What a listing says of an object."""

    key: str
    size: int
    changed_at: datetime


class _Watch:
    """Ends the call that it stands around when too little moves: TimeoutError.

    `moved` is told of the bytes of its body, by whatever thread.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._moved = 0
        self._until = time.monotonic() + seconds
        self._limit = asyncio.timeout(None)
        self._look: asyncio.TimerHandle | None = None

    def moved(self, count: int) -> None:
        self._moved += count
        if self._moved >= MOVED_BYTES_MIN:
            self._moved = 0
            self._until = time.monotonic() + self._seconds

    async def __aenter__(self) -> Self:
        await self._limit.__aenter__()
        self._look_again(self._seconds)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._look is not None:
            self._look.cancel()
        await self._limit.__aexit__(kind, error, trace)

    def _look_again(self, seconds: float) -> None:
        self._look = asyncio.get_running_loop().call_later(seconds, self._looked)

    def _looked(self) -> None:
        # By the clock and not by the order of callbacks: a loop that was held up by our own work
        # has bytes to tell of that it has not come to yet.
        rest = self._until - time.monotonic()
        if rest > 0:
            self._look_again(rest)
        else:
            self._look = None
            self._limit.reschedule(asyncio.get_running_loop().time())


class _Sent(io.RawIOBase):
    """A body on its way out; each block of it that is asked for is a sign that the last one went.

    botocore reads it once more before, for its signature.
    """

    def __init__(self, file: BinaryIO, watch: _Watch) -> None:
        super().__init__()
        self._file = file
        self._watch = watch
        self.name = getattr(file, "name", "")

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        return self._file.seek(offset, whence)

    def tell(self) -> int:
        return self._file.tell()

    def read(self, size: int | None = -1) -> bytes:
        everything = size is None or size < 0
        data = self._file.read(-1 if everything else min(size or 0, _BLOCK_BYTES))
        self._watch.moved(len(data))
        return data


class ObjectStore:
    """One bucket."""

    def __init__(self, objects: Objects, *, timeout_seconds: float = 10) -> None:
        """`timeout_seconds` is how long a call may stand still: a small one, how long it may take.

        A copy inside the store and the joining of parts have `COPY_SECONDS`.
        """
        self._settings = objects
        self._timeout = timeout_seconds
        self._stack = AsyncExitStack()
        self._client: Untyped = None
        self._copier: Untyped = None
        """As the client, with the patience that a copy needs."""
        self._signer: Untyped = None
        """A client that knows the public address; it signs and never connects."""

    @property
    def bucket(self) -> str:
        """The name of the bucket."""
        return self._settings.bucket

    async def start(self) -> None:
        """Make the clients; connects to nothing yet."""
        inside = self._settings.endpoint
        outside = self._settings.public_endpoint or inside
        self._client = await self._make_client(inside, self._timeout)
        self._copier = await self._make_client(inside, COPY_SECONDS)
        self._signer = self._client
        if outside != inside:
            self._signer = await self._make_client(outside, self._timeout)

    async def stop(self) -> None:
        """Close the connections, also those that still have bytes which nobody takes."""
        with suppress(TimeoutError):
            async with asyncio.timeout(self._timeout):
                await self._stack.aclose()
        self._client = self._copier = self._signer = None

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def _make_client(self, endpoint: str, read_timeout: float) -> Untyped:
        session: Untyped = aiobotocore.session.get_session()
        client: Untyped = await self._stack.enter_async_context(
            session.create_client(
                "s3",
                endpoint_url=endpoint,
                region_name=self._settings.region,
                aws_access_key_id=self._settings.access_key,
                aws_secret_access_key=self._settings.secret_key,
                config=AioConfig(
                    signature_version="s3v4",
                    s3={"addressing_style": "path"},
                    connect_timeout=self._timeout,
                    read_timeout=read_timeout,
                    retries={"max_attempts": 2, "mode": "standard"},
                    max_pool_connections=_CONNECTIONS_MAX,
                    connector_args={"socket_factory": self._make_socket},
                    # Trailing checksums of newer clients are not understood by every store.
                    request_checksum_calculation="when_required",
                    response_checksum_validation="when_required",
                ),
            )
        )
        # A body is sent without asking first: a store that never says 100 has no timeout below us.
        client.meta.events.register_last("before-call.s3", _expect_nothing)
        return client

    def _make_socket(self, address: tuple[Any, ...]) -> socket.socket:
        """Where the kernel can: it gives up on a peer that takes nothing, also after a call ended.

        A connection that is closed with bytes to send would stay otherwise, and they with it.
        """
        family, kind, protocol = address[:3]
        made = socket.socket(family=family, type=kind, proto=protocol)
        for option, value in (
            ("TCP_USER_TIMEOUT", round(self._timeout * 1_000)),
            ("TCP_NOTSENT_LOWAT", _UNSENT_BYTES_MAX),
        ):
            with suppress(AttributeError, OSError):  # not of this system, or not of its kernel
                made.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)
        return made

    async def ensure_bucket(self) -> None:
        """Make the bucket if it is missing; safe to call from several processes."""
        try:
            await self._call("head_bucket")
        except ObjectMissingError:
            try:
                await self._call("create_bucket")
            except ObjectStoreUnavailableError:
                await self._call("head_bucket")  # somebody else made it, or it is truly away

    async def put(self, key: str, data: bytes, *, content_type: str) -> StoredObject:
        """Store bytes."""
        sha256 = hashlib.sha256(data).hexdigest()
        return await self._put(key, io.BytesIO(data), len(data), sha256, content_type)

    async def put_file(self, key: str, path: Path, *, content_type: str) -> StoredObject:
        """Store a file, streamed (at most 5 GB)."""
        size, sha256 = await asyncio.to_thread(_digest_file, path)
        with path.open("rb") as file:
            return await self._put(key, file, size, sha256, content_type)

    async def _put(
        self, key: str, body: BinaryIO, size: int, sha256: str, content_type: str
    ) -> StoredObject:
        answer = await self._call(
            "put_object",
            body=body,
            Key=key,
            ContentLength=size,
            ContentType=content_type,
            Metadata={"sha256": sha256},
        )
        return StoredObject(key, size, _etag(answer), content_type, sha256)

    async def copy(
        self, source: str, target: str, *, content_type: str, sha256: str = ""
    ) -> StoredObject:
        """Copy an object inside the store; raises ObjectMissingError.

        The target says of itself what is told here, whatever the source's writer said.
        """
        found = await self.head(source)
        if found is None:
            raise ObjectMissingError(f"copy_object {source}")
        if found.size > COPY_BYTES_MAX:
            await self._copy_in_parts(found, target, content_type=content_type, sha256=sha256)
        else:
            await self._call(
                "copy_object",
                client=self._copier,
                CopySource={"Bucket": self.bucket, "Key": source},
                Key=target,
                ContentType=content_type,
                Metadata={"sha256": sha256} if sha256 else {},
                MetadataDirective="REPLACE",
            )
        copied = await self.head(target)
        if copied is None:
            raise ObjectStoreUnavailableError(f"copy_object {target}: it is not there")
        return copied

    async def _copy_in_parts(
        self, source: StoredObject, target: str, *, content_type: str, sha256: str
    ) -> None:
        upload_id = await self.create_upload(target, content_type=content_type, sha256=sha256)
        parts: list[StoredPart] = []
        try:
            for number, start in enumerate(range(0, source.size, COPY_BYTES_MAX), 1):
                end = min(start + COPY_BYTES_MAX, source.size) - 1
                answer = await self._call(
                    "upload_part_copy",
                    client=self._copier,
                    CopySource={"Bucket": self.bucket, "Key": source.key},
                    CopySourceRange=f"bytes={start}-{end}",
                    Key=target,
                    UploadId=upload_id,
                    PartNumber=number,
                )
                etag = _etag(answer["CopyPartResult"])
                parts.append(StoredPart(number, end - start + 1, etag))
            await self.complete_upload(target, upload_id, parts)
        except BaseException:
            await self.abort_upload(target, upload_id)
            raise

    async def head(self, key: str) -> StoredObject | None:
        """What stands under a name, or None."""
        try:
            answer = await self._call("head_object", Key=key)
        except ObjectMissingError:
            return None
        return StoredObject(
            key,
            int(answer["ContentLength"]),
            _etag(answer),
            str(answer.get("ContentType", "")),
            str(answer.get("Metadata", {}).get("sha256", "")),
        )

    async def get(self, key: str) -> bytes:
        """The bytes of a (small) object; raises ObjectMissingError."""
        return b"".join([chunk async for chunk in self.stream(key)])

    async def get_file(self, key: str, path: Path) -> tuple[int, str]:
        """Fetch an object into a file; its size and sha256. Raises ObjectMissingError."""
        digest, size = hashlib.sha256(), 0
        with path.open("wb") as file:
            async for chunk in self.stream(key):
                file.write(chunk)
                digest.update(chunk)
                size += len(chunk)
        return size, digest.hexdigest()

    async def digest(self, key: str) -> tuple[int, str]:
        """Size and sha256 of an object as it is read; raises ObjectMissingError."""
        digest, size = hashlib.sha256(), 0
        async for chunk in self.stream(key):
            digest.update(chunk)
            size += len(chunk)
        return size, digest.hexdigest()

    async def stream(self, key: str) -> AsyncIterator[bytes]:
        """The object in chunks; raises ObjectMissingError."""
        answer = await self._call("get_object", Key=key)
        async with answer["Body"] as body:
            while chunk := await self._read_some(key, body):
                yield chunk

    async def _read_some(self, key: str, body: Untyped) -> bytes:
        """What comes next: enough of it to be a body that moves, or the rest; b"" is its end."""
        chunks: list[bytes] = []
        size = 0
        try:
            async with asyncio.timeout(self._timeout):
                while size < MOVED_BYTES_MIN:
                    chunk: bytes = await body.read(CHUNK_BYTES)
                    if not chunk:
                        break
                    chunks.append(chunk)
                    size += len(chunk)
        except _AWAY as error:
            raise ObjectStoreUnavailableError(f"get_object {key}: {error!r}") from error
        return b"".join(chunks)

    async def read_range(self, key: str, offset: int, length: int) -> bytes:
        """At most `length` bytes of an object, from `offset` on; raises ObjectMissingError."""
        answer = await self._call(
            "get_object", Key=key, Range=f"bytes={offset}-{offset + length - 1}"
        )
        found = bytearray()
        async with answer["Body"] as body:
            while chunk := await self._read_some(key, body):
                found += chunk
        return bytes(found)

    async def sizes(self, prefix: str) -> dict[str, int]:
        """The names that begin so, and how many bytes stand under each."""
        found: dict[str, int] = {}
        more: dict[str, Untyped] = {}
        while True:
            page = await self._call("list_objects_v2", Prefix=prefix, **more)
            if more and page.get("NextContinuationToken") == more["ContinuationToken"]:
                raise ObjectStoreUnavailableError(f"list_objects_v2 {prefix}: it has no end")
            found |= {str(one["Key"]): int(one["Size"]) for one in page.get("Contents", ())}
            following = page.get("NextContinuationToken")
            if not page.get("IsTruncated") or not following:
                return found
            more = {"ContinuationToken": str(following)}

    async def page(self, prefix: str, after: str, limit: int) -> list[ListedObject]:
        """At most `limit` objects whose names begin so and come after `after`, by name."""
        page = await self._call(
            "list_objects_v2", Prefix=prefix, StartAfter=after, MaxKeys=min(limit, 1_000)
        )
        return [
            ListedObject(str(one["Key"]), int(one["Size"]), one["LastModified"])
            for one in page.get("Contents", ())
        ]

    async def move_to_class(self, key: str, storage_class: str) -> None:
        """Let the store keep an object in another class; raises ObjectMissingError."""
        await self._call(
            "copy_object",
            client=self._copier,
            CopySource={"Bucket": self.bucket, "Key": key},
            Key=key,
            MetadataDirective="COPY",
            StorageClass=storage_class,
        )

    # --- uploads in parts ------------------------------------------------------------------------

    async def create_upload(self, key: str, *, content_type: str, sha256: str = "") -> str:
        """Begin an upload in parts; the store's id of it."""
        answer = await self._call(
            "create_multipart_upload",
            Key=key,
            ContentType=content_type,
            Metadata={"sha256": sha256} if sha256 else {},
        )
        return str(answer["UploadId"])

    async def put_part(self, key: str, upload_id: str, number: int, data: bytes) -> StoredPart:
        """Store one part; raises ObjectMissingError when there is no such upload any more."""
        answer = await self._call(
            "upload_part",
            body=io.BytesIO(data),
            Key=key,
            UploadId=upload_id,
            PartNumber=number,
            ContentLength=len(data),
        )
        return StoredPart(number, len(data), _etag(answer))

    async def parts(self, key: str, upload_id: str) -> list[StoredPart]:
        """The parts that are stored, by number; raises ObjectMissingError (no such upload)."""
        found: dict[int, StoredPart] = {}
        after = 0
        while True:
            page = await self._call(
                "list_parts", Key=key, UploadId=upload_id, PartNumberMarker=after, MaxParts=1_000
            )
            for part in page.get("Parts", ()):
                stored = StoredPart(int(part["PartNumber"]), int(part["Size"]), _etag(part))
                found[stored.number] = stored
            following = int(page.get("NextPartNumberMarker") or 0)
            if not page.get("IsTruncated") or following <= after:
                return [found[number] for number in sorted(found)]
            after = following

    async def complete_upload(
        self, key: str, upload_id: str, parts: Sequence[StoredPart]
    ) -> StoredObject:
        """Make one object of the parts.

        Raises ObjectMissingError when there is no such upload any more: somebody completed or
        aborted it (`head` tells which), and PartsRefusedError when the parts are not as named.
        """
        named = [{"PartNumber": part.number, "ETag": part.etag} for part in parts]
        await self._call(
            "complete_multipart_upload",
            client=self._copier,
            Key=key,
            UploadId=upload_id,
            MultipartUpload={"Parts": named},
        )
        made = await self.head(key)
        if made is None:
            raise ObjectStoreUnavailableError(f"complete_multipart_upload {key}: it is not there")
        return made

    async def abort_upload(self, key: str, upload_id: str) -> None:
        """Forget an upload and its parts; one that is not there is no error."""
        with suppress(ObjectMissingError):
            await self._call("abort_multipart_upload", Key=key, UploadId=upload_id)

    async def delete(self, key: str) -> None:
        """Forget an object; one that is not there is no error."""
        await self._call("delete_object", Key=key)

    async def presigned_put(
        self, key: str, *, content_type: str, size: int, seconds: int = 3600
    ) -> str:
        """An address to which exactly `size` bytes of that type may be PUT, for so long."""
        return await self._sign(
            "put_object", seconds, Key=key, ContentType=content_type, ContentLength=size
        )

    async def presigned_part(
        self, key: str, upload_id: str, number: int, *, size: int, seconds: int = 3600
    ) -> str:
        """An address to which exactly `size` bytes may be PUT as this part, for so long."""
        return await self._sign(
            "upload_part",
            seconds,
            Key=key,
            UploadId=upload_id,
            PartNumber=number,
            ContentLength=size,
        )

    async def presigned_get(self, key: str, *, seconds: int = 3600, filename: str = "") -> str:
        """An address from which the object may be fetched, for so long."""
        more = {"ResponseContentDisposition": content_disposition(filename)} if filename else {}
        return await self._sign("get_object", seconds, Key=key, **more)

    async def _sign(self, operation: str, seconds: int, **parameters: Untyped) -> str:
        address: str = await self._signer.generate_presigned_url(
            operation, Params={"Bucket": self.bucket, **parameters}, ExpiresIn=seconds
        )
        return address

    async def _call(
        self,
        operation: str,
        client: Untyped = None,
        body: BinaryIO | None = None,
        **parameters: Untyped,
    ) -> Untyped:
        """One call, with what is tried again inside; its retries have the one time together."""
        seconds = self._timeout if client is None else COPY_SECONDS
        try:
            async with _Watch(seconds) as watch:
                if body is not None:
                    parameters["Body"] = _Sent(body, watch)
                return await getattr(client or self._client, operation)(
                    Bucket=self.bucket, **parameters
                )
        except ClientError as error:
            code = str(error.response.get("Error", {}).get("Code", ""))
            if code in _MISSING or code == "NoSuchBucket":
                raise ObjectMissingError(f"{operation} {parameters.get('Key', '')}") from error
            if code in _PARTS_REFUSED:
                raise PartsRefusedError(f"{operation}: {error}") from error
            raise ObjectStoreUnavailableError(f"{operation}: {error}") from error
        except TimeoutError as error:
            raise ObjectStoreUnavailableError(
                f"{operation}: nothing has moved for {seconds} s"
            ) from error
        except _AWAY as error:
            raise ObjectStoreUnavailableError(f"{operation}: {error!r}") from error


def content_disposition(filename: str) -> str:
    """The header that gives a download its name, whatever characters that has (RFC 6266, 5987)."""
    plain = "".join(one if one in _PLAIN else "_" for one in filename)
    header = f'attachment; filename="{plain}"'
    return header if plain == filename else f"{header}; filename*=UTF-8''{quote(filename, safe='')}"


def _expect_nothing(params: dict[str, Untyped], **_: object) -> None:
    params["headers"].pop("Expect", None)


def _etag(answer: Untyped) -> str:
    return str(answer.get("ETag", "")).strip('"')


def _digest_file(path: Path) -> tuple[int, str]:
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256")
        return file.tell(), digest.hexdigest()
