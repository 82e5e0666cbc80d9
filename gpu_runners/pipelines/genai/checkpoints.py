"""The file of an attempt that was stopped: how it is written, and whether it can be gone on with.

One safetensors file: numbers as tensors, the rest as JSON in its header, a digest over both.
Nothing in it is code, so one that somebody tampered with can at worst be refused. It is written
beside its place, flushed to the disk and renamed: there is a whole file or none.
"""

import hashlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    import torch

BYTES_MAX = 1_000_000_000
_FORMAT = 1
_STATE = "state"
_DIGEST = "sha256"

Kept = Any
"""What a value of a scheduler becomes: JSON; tensors and floats are objects that say so."""


class State(msgspec.Struct, frozen=True, kw_only=True):
    """All of a checkpoint but its numbers."""

    format: int = _FORMAT
    task_id: str
    order: str
    """Digest of the order and the inputs: another order is another picture."""
    fingerprint: dict[str, str]
    """On what it was made: bits are the same only on the same."""
    card_seconds: float
    """Card time that is in it, of all attempts so far."""
    unit: int
    """Batches or frames that are done; the next one may have begun."""
    step: int
    """Steps done of the one that has begun; 0: it has not."""
    steps: int
    """Steps of a unit, as this scheduler counts them."""
    scheduler: dict[str, Kept]
    """Every attribute of the scheduler by name; see `schedulers`."""
    strides: dict[str, tuple[int, ...]] = {}
    """How tensors lay in memory, if not in their own order: other kernels would round otherwise."""


class Checkpoint(msgspec.Struct, frozen=True, kw_only=True):
    state: State
    tensors: dict[str, "torch.Tensor"]


class UnusableError(Exception):
    """A file can't be gone on with; the message says why, for the facts."""


def write(path: Path, checkpoint: Checkpoint) -> None:
    """Write it, so that there is never half a file, after a loss of power neither."""
    from safetensors.torch import save  # noqa: PLC0415 - comes with torch, late

    given = {name: tensor.cpu() for name, tensor in checkpoint.tensors.items()}
    strides = {
        name: tensor.stride() for name, tensor in given.items() if not tensor.is_contiguous()
    }
    tensors = {name: tensor.contiguous() for name, tensor in given.items()}
    whole = msgspec.structs.replace(checkpoint.state, strides=strides)
    state = msgspec.json.encode(whole).decode()
    metadata = {_STATE: state, _DIGEST: digest_of(state, tensors)}
    beside = path.with_name(path.name + ".new")
    with beside.open("wb") as file:
        file.write(save(tensors, metadata))
        file.flush()
        os.fsync(file.fileno())
    beside.replace(path)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def read(path: Path) -> Checkpoint:
    """Read a file of whatever origin. Errors: UnusableError."""
    from safetensors import SafetensorError, safe_open  # noqa: PLC0415 - comes with torch, late
    from safetensors.torch import load  # noqa: PLC0415

    try:
        if path.stat().st_size > BYTES_MAX:
            raise UnusableError("the checkpoint is too large")
        with safe_open(path, framework="pt") as file:
            metadata: dict[str, str] = file.metadata() or {}
        tensors = load(path.read_bytes())
    except (OSError, SafetensorError, ValueError, KeyError) as error:
        raise UnusableError("the checkpoint is damaged") from error
    text = metadata.get(_STATE, "")
    if metadata.get(_DIGEST) != digest_of(text, tensors):
        raise UnusableError("the checkpoint is damaged")
    try:
        state = msgspec.json.decode(text, type=State)
    except msgspec.DecodeError as error:
        raise UnusableError("the checkpoint is of another release") from error
    laid = {name: _laid(tensor, state.strides.get(name)) for name, tensor in tensors.items()}
    return Checkpoint(state=state, tensors=laid)


def fits(state: State, task_id: str, order: str, fingerprint: Mapping[str, str]) -> None:
    """Whether another attempt may go on from it. Errors: UnusableError, naming what differs."""
    if state.format != _FORMAT:
        raise UnusableError("the checkpoint is of another release")
    if state.task_id != task_id:
        raise UnusableError("the checkpoint is another task's")
    names = sorted(set(fingerprint) | set(state.fingerprint))
    other = [name for name in names if fingerprint.get(name) != state.fingerprint.get(name)]
    if other:
        raise UnusableError(f"the fingerprint differs in {', '.join(other)}")
    if state.order != order:
        raise UnusableError("the checkpoint is of another order or input")
    if not (state.unit >= 0 and 0 <= state.step < state.steps):
        raise UnusableError("the checkpoint is damaged")


def _laid(tensor: "torch.Tensor", strides: tuple[int, ...] | None) -> "torch.Tensor":
    """A copy in memory of its own, in the order that it had."""
    import torch  # noqa: PLC0415 - late on purpose

    if strides is None:
        return tensor.clone()
    dense = sorted(zip(strides, tensor.shape, strict=False))
    size = 1
    for stride, length in dense:
        if stride != size and length > 1:
            raise UnusableError("the checkpoint is damaged")
        size *= length
    return torch.empty_strided(tensor.shape, strides, dtype=tensor.dtype).copy_(tensor)


def digest_of(state: str, tensors: Mapping[str, "torch.Tensor"]) -> str:
    """Of all that a file holds: a bit that changed on the way is not gone on from."""
    import torch  # noqa: PLC0415 - late on purpose

    digest = hashlib.sha256(state.encode())
    for name in sorted(tensors):
        tensor = tensors[name]
        digest.update(f"\0{name}\0{tensor.dtype}\0{tuple(tensor.shape)}\0".encode())
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()
