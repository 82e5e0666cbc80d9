"""The job that the engine and stock Faust both do: a small decider over counters, in JSON."""

import hashlib

import msgspec


class Command(msgspec.Struct):
    id: int
    op: str
    n: int
    pad: str = ""


class State(msgspec.Struct, frozen=True):
    n: int = 0
    total: int = 0
    last: int = -1
    chain: str = ""
    status: str = "RUNNING"


class Event(msgspec.Struct, frozen=True):
    cmd: int
    n: int
    total: int
    chain: str
    status: str = "RUNNING"
    pad: str = "y" * 60


decode_command = msgspec.json.Decoder(Command).decode
decode_state = msgspec.json.Decoder(State).decode
decode_event = msgspec.json.Decoder(Event).decode
encode = msgspec.json.Encoder().encode


def decide(state: State, command: Command) -> list[Event]:
    text = f"{state.chain}|{command.id}".encode()
    chain = hashlib.blake2b(text, digest_size=6).hexdigest()
    return [Event(command.id, state.n + 1, state.total + command.n, chain)]


def evolve(state: State, event: Event) -> State:
    del state
    return State(event.n, event.total, event.cmd, event.chain, event.status)


def command(number: int) -> bytes:
    """About 190 bytes."""
    return encode(Command(number, "increment", number % 7, "x" * 140))


def key(number: int, keys: int) -> bytes:
    return b"agg-%06d" % (number * 7919 % keys)
