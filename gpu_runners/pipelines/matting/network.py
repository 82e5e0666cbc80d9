"""The network's file said anew: the same sums, in the words that the runtime is quick at.

U-2-Net was written down by tracing: at each step up of its pyramids it asks for the size of another
plane, and the runtime then turns its planes over and back. Three things are said differently; every
weight stays, and so do the results, but for the order in which floats are added:

- A plane is made larger by a factor, not to a size that has to be found out.
- What looks at two stacks laid on each other looks at each of them, and adds: nothing is copied.
- A window of 3 x 3 with one result costs as much as one with sixteen. Nine results of single pixels
  and a window that puts them together cost a third.

The file is a protocol buffer of which few fields matter, so they are read and written here.
Source: onnx.proto of github.com/onnx/onnx.
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Weights = npt.NDArray[np.float32]
Field = tuple[int, int | bytes]
"""Number and value."""

_GRAPH = 7
_NODE, _WEIGHTS, _RESULT = 1, 5, 12
_INPUT, _OUTPUT, _KIND, _ATTRIBUTE = 1, 2, 4, 5
_SHAPE, _DATA_TYPE, _NAME, _RAW = 1, 2, 8, 9
_RESULT_NAME = 1
_FLOAT = 1
_VARINT, _BYTES = 0, 2
_PLACES, _QUICK_PLACES = b"pytorch_half_pixel", b"half_pixel"
"""How pixels of two sizes lie on each other. They differ for planes of one pixel, of which there
are none, and only the second has a quick way."""
_LANES = 16
"""Results that the runtime works on at once."""
_WINDOW = 9


class NetworkError(Exception):
    """The file says other things than expected. It may be right all the same."""


class Node(NamedTuple):
    """One step of the network."""

    kind: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: tuple[bytes, ...] = ()


def said_anew(file: bytes) -> bytes:
    """A U-2-Net's file, for the size of picture that stands in it; its first result only.

    Errors: NetworkError.
    """
    try:
        model = list(_fields(file))
        graph = list(_fields(_bytes(dict(model)[_GRAPH])))
        nodes = [_node(_bytes(value)) for number, value in graph if number == _NODE]
        weights = dict(_named(_bytes(value)) for number, value in graph if number == _WEIGHTS)
        nodes = _by_factors(nodes, weights)
        nodes = _unstacked(nodes, weights)
        nodes = _put_together(nodes, weights)
        result = next(_bytes(value) for number, value in graph if number == _RESULT)
        nodes, names = _needed(nodes, _bytes(dict(_fields(result))[_RESULT_NAME]).decode())
        fields: list[Field] = [(_NODE, _node_bytes(node)) for node in nodes]
        fields += [(_WEIGHTS, _weights_bytes(n, a)) for n, a in weights.items() if n in names]
        fields += [field for field in graph if field[0] not in {_NODE, _WEIGHTS, _RESULT}]
        anew = _written([*fields, (_RESULT, result)])
        return _written((n, anew if n == _GRAPH else value) for n, value in model)
    except (LookupError, ValueError, TypeError) as error:
        raise NetworkError(f"The network can't be said anew: {error}") from error


def _by_factors(nodes: list[Node], weights: dict[str, Weights]) -> list[Node]:
    """Each `Resize` with the factor that the pools before it tell."""
    halvings: dict[str, int] = {}
    asked: dict[str, frozenset[str]] = {}
    made: list[Node] = []
    for node in nodes:
        known = [halvings[name] for name in node.inputs if name in halvings]
        about = frozenset[str]().union(*(asked.get(name, frozenset()) for name in node.inputs))
        if node.kind == "Shape":
            asked[node.outputs[0]] = frozenset(node.inputs)
        elif node.kind == "Resize":
            plane, region, _, _ = node.inputs
            (wanted,) = {halvings[name] for name in about - {plane}}
            factor = 2.0 ** (halvings[plane] - wanted)
            name = f"by-{factor:g}"
            weights[name] = np.array((1, 1, factor, factor), np.float32)
            attributes = tuple(_quick(attribute) for attribute in node.attributes)
            made.append(Node(node.kind, (plane, region, name), node.outputs, attributes))
            halvings[node.outputs[0]] = wanted
            continue
        elif about:
            asked[node.outputs[0]] = about
        elif node.kind != "Constant":
            halvings[node.outputs[0]] = max(known, default=0) + (node.kind == "MaxPool")
        made.append(node)
    return made


def _unstacked(nodes: list[Node], weights: dict[str, Weights]) -> list[Node]:
    """Each `Conv` of two stacks as the sum of one of each."""
    stacks = {node.outputs[0]: node.inputs for node in nodes if node.kind == "Concat"}
    depths = {
        node.outputs[0]: len(weights[node.inputs[1]]) for node in nodes if node.kind == "Conv"
    }
    for node in nodes:
        if node.kind in {"Relu", "MaxPool", "Resize", "Add"}:
            depths[node.outputs[0]] = depths[node.inputs[0]]
    made: list[Node] = []
    for node in nodes:
        stack = stacks.get(node.inputs[0], ()) if node.kind == "Conv" else ()
        if len(stack) != 2:  # noqa: PLR2004
            made.append(node)
            continue
        upper, lower = stack
        _, kernel, bias = node.inputs
        (result,) = node.outputs
        at = depths[upper]
        parts = f"{kernel}-upper", f"{kernel}-lower"
        sums = f"{result}-upper", f"{result}-lower"
        weights[parts[0]], weights[parts[1]] = weights[kernel][:, :at], weights[kernel][:, at:]
        made += [
            Node("Conv", (lower, parts[1]), (sums[1],), node.attributes),
            Node("Conv", (upper, parts[0], bias), (sums[0],), node.attributes),
            Node("Add", sums, (result,)),
        ]
    return made


def _put_together(nodes: list[Node], weights: dict[str, Weights]) -> list[Node]:
    """Each window with one result as nine results of single pixels, and one of those."""
    made: list[Node] = []
    for node in nodes:
        kernel = weights.get(node.inputs[1]) if node.kind == "Conv" else None
        if kernel is None or (len(kernel), kernel[0, 0].size) != (1, _WINDOW):
            made.append(node)
            continue
        plane, name, bias = node.inputs
        single, window, between = f"{name}-single", f"{name}-window", f"{node.outputs[0]}-single"
        weights[single] = np.zeros((_LANES, kernel.shape[1], 1, 1), np.float32)
        weights[single][:_WINDOW, :, 0, 0] = kernel.reshape(-1, _WINDOW).T
        weights[window] = np.zeros((1, _LANES, *kernel.shape[2:]), np.float32)
        weights[window].reshape(_LANES, _WINDOW)[:_WINDOW] = np.eye(_WINDOW, dtype=np.float32)
        made += [
            Node("Conv", (plane, single), (between,)),
            Node("Conv", (between, window, bias), node.outputs, node.attributes),
        ]
    return made


def _needed(nodes: list[Node], result: str) -> tuple[list[Node], set[str]]:
    """The steps that lead to a result, and the names of all that they take."""
    names = {result}
    made: list[Node] = []
    for node in reversed(nodes):
        if names.intersection(node.outputs):
            names.update(node.inputs)
            made.append(node)
    return made[::-1], names


def _node(data: bytes) -> Node:
    fields = list(_fields(data))
    texts = [(number, _bytes(value)) for number, value in fields if number <= _ATTRIBUTE]
    return Node(
        kind=dict(texts)[_KIND].decode(),
        inputs=tuple(value.decode() for number, value in texts if number == _INPUT),
        outputs=tuple(value.decode() for number, value in texts if number == _OUTPUT),
        attributes=tuple(value for number, value in texts if number == _ATTRIBUTE),
    )


def _node_bytes(node: Node) -> bytes:
    fields: list[Field] = [(_INPUT, name.encode()) for name in node.inputs]
    fields += [(_OUTPUT, name.encode()) for name in node.outputs]
    fields.append((_KIND, node.kind.encode()))
    return _written([*fields, *((_ATTRIBUTE, attribute) for attribute in node.attributes)])


def _quick(attribute: bytes) -> bytes:
    """The same attribute of a `Resize`, but for the name of its places."""
    if _PLACES not in attribute:
        return attribute
    return _written((n, _QUICK_PLACES if v == _PLACES else v) for n, v in _fields(attribute))


def _named(data: bytes) -> tuple[str, Weights]:
    fields = list(_fields(data))
    told = dict(fields)
    if told[_DATA_TYPE] != _FLOAT:
        raise NetworkError("Weights other than floats of 32 bit.")
    shape: list[int] = []
    for number, value in fields:
        if number == _SHAPE:
            shape += [value] if isinstance(value, int) else _packed(value)
    array = np.frombuffer(_bytes(told[_RAW]), "<f4").reshape(shape)
    return _bytes(told[_NAME]).decode(), array


def _weights_bytes(name: str, array: Weights) -> bytes:
    fields: list[Field] = [(_SHAPE, side) for side in array.shape]
    fields += [(_DATA_TYPE, _FLOAT), (_NAME, name.encode())]
    return _written([*fields, (_RAW, array.astype("<f4").tobytes())])


def _fields(data: bytes) -> Iterator[Field]:
    """The fields of a message: numbers and bytes; others don't occur where this is used."""
    at = 0
    while at < len(data):
        key, at = _varint(data, at)
        value, at = _varint(data, at)
        match key & 7:
            case wire if wire == _VARINT:
                yield key >> 3, value
            case wire if wire == _BYTES:
                if at + value > len(data):
                    raise NetworkError("It breaks off.")
                yield key >> 3, data[at : at + value]
                at += value
            case wire:
                raise NetworkError(f"A field of wire type {wire}.")


def _packed(data: bytes) -> list[int]:
    values: list[int] = []
    at = 0
    while at < len(data):
        value, at = _varint(data, at)
        values.append(value)
    return values


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:  # noqa: PLR2004 - the last one has its upper bit clear
            return value, at


def _written(fields: Iterable[Field]) -> bytes:
    out = bytearray()
    for number, value in fields:
        _write_varint(out, number << 3 | (_VARINT if isinstance(value, int) else _BYTES))
        if isinstance(value, int):
            _write_varint(out, value)
        else:
            _write_varint(out, len(value))
            out += value
    return bytes(out)


def _write_varint(out: bytearray, value: int) -> None:
    while value > 0x7F:  # noqa: PLR2004
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)


def _bytes(value: int | bytes) -> bytes:
    if isinstance(value, int):
        raise NetworkError("A number where bytes should be.")
    return value
