"""The key store of private data: one key for each subject, and nothing readable without it.

What names a person travels sealed (AES-256-GCM) in the `private` field of messages. To erase a
person is to erase his key: what was sealed for him stays in the log and says nothing any more.
`KeyStore` is the seam; `FileKeyStore` keeps a file a subject, which is enough for one machine.
"""

import asyncio
import hashlib
import os
import re
from pathlib import Path
from typing import Final, NamedTuple, Protocol

import msgspec
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

KEY_BYTES: Final = 32
CACHED_MAX: Final = 50_000
_VERSION: Final = b"\x01"
_MARK_BYTES: Final = 8
_NONCE_BYTES: Final = 12
_HEAD_BYTES: Final = len(_VERSION) + _MARK_BYTES + _NONCE_BYTES
_SUBJECT: Final = re.compile(r"[0-9A-Za-z_-]{1,80}")
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(dict[str, str]).decode


class SealBrokenError(Exception):
    """Bytes that were never sealed for this subject, or that were changed."""


class KeyStore(Protocol):
    """Seals private fields for a subject (a user's pseudonym), and forgets subjects."""

    async def prepare(self, subject: str) -> None:
        """Make the subject's key if there is none, off the event loop; cheap when there is one."""
        ...

    def seal(self, subject: str, fields: dict[str, str]) -> bytes:
        """The fields, readable only with the subject's key; makes the key on first use."""
        ...

    def open(self, subject: str, sealed: bytes) -> dict[str, str] | None:
        """What was sealed, or None when the subject was erased since; raises SealBrokenError."""
        ...

    def erase(self, subject: str) -> bool:
        """Destroy the subject's key; False: there was none."""
        ...


class _Key(NamedTuple):
    cipher: AESGCM
    mark: bytes
    """The first bytes of the key's digest: which key sealed something."""
    inode: int


class FileKeyStore:
    """A key a file, mode 0600, made atomically; several processes may share the directory.

    A key in memory counts only while its very file is there, so that an erasure holds at once in
    every process.
    """

    def __init__(self, directory: str | Path) -> None:
        self._directory = Path(directory)
        self._keys: dict[str, _Key] = {}

    async def prepare(self, subject: str) -> None:
        """Make the key in a thread (it is synced to the disk), unless it is there."""
        if self._find(subject) is None:
            await asyncio.to_thread(self._make, subject)

    def seal(self, subject: str, fields: dict[str, str]) -> bytes:
        """Version, mark of the key, nonce, ciphertext and tag; the subject is authenticated too."""
        key = self._find(subject) or self._make(subject)
        nonce = os.urandom(_NONCE_BYTES)
        sealed = key.cipher.encrypt(nonce, _encode(fields), subject.encode())
        return _VERSION + key.mark + nonce + sealed

    def open(self, subject: str, sealed: bytes) -> dict[str, str] | None:
        """The fields; None: the key that sealed them is gone. Raises SealBrokenError."""
        if len(sealed) <= _HEAD_BYTES or not sealed.startswith(_VERSION):
            raise SealBrokenError(f"{len(sealed)} bytes that were never sealed")
        key = self._find(subject)
        mark = sealed[len(_VERSION) : len(_VERSION) + _MARK_BYTES]
        if key is None or key.mark != mark:
            return None
        nonce = sealed[len(_VERSION) + _MARK_BYTES : _HEAD_BYTES]
        try:
            return _decode(key.cipher.decrypt(nonce, sealed[_HEAD_BYTES:], subject.encode()))
        except InvalidTag:
            raise SealBrokenError("sealed for another subject, or changed") from None

    def erase(self, subject: str) -> bool:
        """Overwrite and unlink the key's file, and sync its directory."""
        path = self._path(subject)
        self._keys.pop(subject, None)
        try:
            with path.open("r+b") as file:
                file.write(bytes(KEY_BYTES))
                file.flush()
                os.fsync(file.fileno())
            path.unlink()
        except FileNotFoundError:
            return False
        _sync(path.parent)
        return True

    def _find(self, subject: str) -> _Key | None:
        path = self._path(subject)
        try:
            inode = path.stat().st_ino
        except FileNotFoundError:
            self._keys.pop(subject, None)
            return None
        key = self._keys.get(subject)
        if key is not None and key.inode == inode:
            return key
        return self._load(subject, path)

    def _load(self, subject: str, path: Path) -> _Key | None:
        try:
            with path.open("rb") as file:
                inode = os.fstat(file.fileno()).st_ino
                secret = file.read()
        except FileNotFoundError:
            return None
        if len(secret) != KEY_BYTES or not any(secret):
            return None  # another process is erasing it
        if len(self._keys) >= CACHED_MAX:
            self._keys.clear()
        mark = hashlib.blake2b(secret, digest_size=_MARK_BYTES, person=b"cutlog-key").digest()
        key = self._keys[subject] = _Key(AESGCM(secret), mark, inode)
        return key

    def _make(self, subject: str) -> _Key:
        """Write a new key beside its place and link it there: the first one to link wins."""
        path = self._path(subject)
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        fresh = path.with_name(f".{path.name}.{os.getpid()}.{os.urandom(6).hex()}")
        file = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            os.write(file, os.urandom(KEY_BYTES))
            os.fsync(file)
            path.hardlink_to(fresh)
            _sync(path.parent)
        except FileExistsError:
            pass  # another process was first; its key is the key
        finally:
            os.close(file)
            fresh.unlink()
        key = self._load(subject, path)
        if key is None:
            raise SealBrokenError(f"the key of {subject} went while it was made")
        return key

    def _path(self, subject: str) -> Path:
        if not _SUBJECT.fullmatch(subject):
            raise ValueError(f"{subject!r} does not name a subject")
        folder = hashlib.blake2b(subject.encode(), digest_size=1).hexdigest()
        return self._directory / folder / subject


def _sync(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
