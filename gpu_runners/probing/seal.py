"""Shuts a process in before it opens a stranger's file: what it no longer needs is taken away.

rlimits hold everywhere. The rest is used where the kernel has it, without privileges, and told
where it has not: a network namespace without any network, Landlock (files: the one to be read and
its own folder; no TCP), seccomp (no sockets, no other program, no look at other processes). No
library of this is kept well, so the calls are made here.
"""

import ctypes
import os
import platform
import resource
import signal
import struct
from pathlib import Path
from typing import Final

from gpu_runners.probing.limits import ProcessLimits

_LIBC: Final = ctypes.CDLL(None, use_errno=True)

_CLONE_NEWUSER, _CLONE_NEWNET = 0x10000000, 0x40000000
_PR_SET_PDEATHSIG, _PR_SET_SECCOMP, _PR_SET_NO_NEW_PRIVS = 1, 22, 38

_LANDLOCK_CREATE, _LANDLOCK_ADD, _LANDLOCK_RESTRICT = 444, 445, 446
_LANDLOCK_VERSION: Final = 1
_BENEATH: Final = 1
_READ_FILE: Final = 1 << 2
_FILE_RIGHTS: Final = {1: (1 << 13) - 1, 2: (1 << 14) - 1, 3: (1 << 15) - 1, 5: (1 << 16) - 1}
"""All rights to files that a version of Landlock knows of (4 adds none)."""
_TCP_SINCE: Final = 4
_TCP_RIGHTS: Final = 3

_THREADS_MAX: Final = 8
_ALLOW, _REFUSE, _KILL = 0x7FFF0000, 0x00050000, 0x80000000
_EPERM, _ENOSYS = 1, 38
_CLONE_THREAD: Final = 0x10000
_X32: Final = 0x40000000
_LOAD, _IF_EQUAL, _IF_AT_LEAST, _IF_ANY, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06


class _Calls:
    """Numbers of system calls of one kind of machine."""

    def __init__(
        self,
        audit: int,
        *,
        clone: int,
        outside: tuple[int, ...],
        shared: tuple[int, ...],
        others: tuple[int, ...],
        kernel: tuple[int, ...],
        own: tuple[int, ...],
    ) -> None:
        self.audit, self.clone = audit, clone
        self.refused = (*outside, *shared, *others, *kernel, *_NEW_REFUSED)
        self.own = own


_CLONE3: Final = 435
_NEW_REFUSED: Final = (424, 425, 426, 427, 428, 429, 430, 431, 432, 433, 434, 438, 440, 442, 448)
"""The same number everywhere: io_uring, mounts, and others by a file descriptor."""
_MACHINES: Final = {
    "x86_64": _Calls(
        0xC000003E,
        clone=56,
        # Sockets, fork, exec.
        outside=(41, 42, 43, 44, 46, 49, 53, 57, 58, 59, 322),
        # Memory, semaphores and queues that are shared by name.
        shared=(29, 30, 31, 64, 65, 66, 68, 69, 70, 71, 240),
        # Signals, ptrace, memory, priorities.
        others=(62, 101, 129, 200, 297, 310, 311, 312, 141, 142, 144, 203, 251, 256, 279, 314),
        # Namespaces, mounts, keys, perf, bpf, userfaultfd.
        kernel=(155, 161, 165, 166, 248, 249, 250, 272, 298, 308, 321, 323),
        own=(234, 302),
    ),
    "aarch64": _Calls(
        0xC00000B7,
        clone=220,
        outside=(198, 199, 200, 202, 203, 206, 211, 221, 281),
        shared=(186, 187, 188, 189, 190, 191, 192, 193, 194, 195, 196, 180),
        others=(129, 117, 138, 130, 240, 270, 271, 272, 140, 118, 119, 122, 30, 238, 239, 274),
        kernel=(41, 51, 40, 39, 217, 218, 219, 97, 241, 268, 280, 282),
        own=(131, 261),
    ),
}
"""`own`: tgkill, by which the C library aborts, and prlimit64, allowed on this process only."""


def seal(source: Path, folder: Path, limits: ProcessLimits) -> tuple[str, ...]:
    """Shut this process in for good. Returns which of the defences the kernel does not have.

    `source` may be read, `folder` may be written in; nothing else is opened from here on.
    """
    _limit(limits)
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    _LIBC.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    missing: list[str] = []
    is_apart = _LIBC.unshare(_CLONE_NEWUSER | _CLONE_NEWNET) == 0
    if not is_apart:
        missing.append("network namespace")
    if not _landlock(source, folder):
        missing.append("landlock")
    if not _seccomp():
        missing.append("seccomp")
    _limit_threads(is_apart=is_apart, may_fork="seccomp" in missing)
    return tuple(missing)


def _limit_threads(*, is_apart: bool, may_fork: bool) -> None:
    """A decoder may need a thread of its own; never many, and no process.

    The kernel counts both together, all of a user's, but in a namespace of users only those within
    it: there the limit is this process's alone. Elsewhere the number would depend on what else the
    user runs, and is set only where nothing refuses processes; then some pictures can't be read.
    """
    if is_apart:
        resource.setrlimit(resource.RLIMIT_NPROC, (_THREADS_MAX, _THREADS_MAX))
    elif may_fork:
        resource.setrlimit(resource.RLIMIT_NPROC, (0, 0))


def _limit(limits: ProcessLimits) -> None:
    for what, most in (
        (resource.RLIMIT_AS, limits.memory_bytes),
        (resource.RLIMIT_FSIZE, limits.file_bytes),
        (resource.RLIMIT_NOFILE, limits.open_files),
        (resource.RLIMIT_CORE, 0),
    ):
        resource.setrlimit(what, (most, most))
    # At the first the process is told by a signal that says why, at the second it is killed.
    resource.setrlimit(resource.RLIMIT_CPU, (limits.cpu_seconds, limits.cpu_seconds + 5))
    signal.signal(signal.SIGXCPU, signal.SIG_DFL)


def _landlock(source: Path, folder: Path) -> bool:
    version = _LIBC.syscall(_LANDLOCK_CREATE, None, ctypes.c_size_t(0), _LANDLOCK_VERSION)
    if version < 1:
        return False
    rights = max(bits for since, bits in _FILE_RIGHTS.items() if since <= version)
    asked = struct.pack("QQ", rights, _TCP_RIGHTS)[: 16 if version >= _TCP_SINCE else 8]
    rules = _LIBC.syscall(_LANDLOCK_CREATE, asked, ctypes.c_size_t(len(asked)), 0)
    if rules < 0:
        return False
    try:
        for path, allowed in ((source, _READ_FILE), (folder, rights)):
            place = os.open(path, os.O_PATH | os.O_CLOEXEC)
            try:
                rule = struct.pack("=Qi", allowed, place)
                if _LIBC.syscall(_LANDLOCK_ADD, rules, _BENEATH, rule, 0) != 0:
                    return False
            finally:
                os.close(place)
        return bool(_LIBC.syscall(_LANDLOCK_RESTRICT, rules, 0) == 0)
    finally:
        os.close(rules)


def _seccomp() -> bool:
    calls = _MACHINES.get(platform.machine())
    if calls is None:
        return False
    program = _program(calls)
    code = b"".join(struct.pack("HBBI", *step) for step in program)
    kept = ctypes.create_string_buffer(code, len(code))
    head = struct.pack("HxxxxxxQ", len(program), ctypes.addressof(kept))
    return bool(_LIBC.prctl(_PR_SET_SECCOMP, 2, ctypes.c_char_p(head), 0, 0) == 0)


def _program(calls: _Calls) -> list[tuple[int, int, int, int]]:
    """Steps of the kernel's packet filter: (code, jump if true, jump if false, operand)."""
    steps: list[tuple[int, int, int, int]] = [
        (_LOAD, 0, 0, 4),  # the kind of machine that the call is made for
        (_IF_EQUAL, 1, 0, calls.audit),
        (_RETURN, 0, 0, _KILL),
        (_LOAD, 0, 0, 0),  # the number of the call
        (_IF_AT_LEAST, 0, 1, _X32),
        (_RETURN, 0, 0, _REFUSE | _EPERM),
        (_IF_EQUAL, 0, 1, _CLONE3),  # the C library goes on with clone, which can be judged
        (_RETURN, 0, 0, _REFUSE | _ENOSYS),
    ]
    for number in calls.refused:
        steps += [(_IF_EQUAL, 0, 1, number), (_RETURN, 0, 0, _REFUSE | _EPERM)]
    for number in calls.own:
        steps += [
            (_IF_EQUAL, 0, 5, number),
            (_LOAD, 0, 0, 16),  # its first argument: the process, or 0 for itself
            (_IF_EQUAL, 2, 0, 0),
            (_IF_EQUAL, 1, 0, os.getpid()),
            (_RETURN, 0, 0, _REFUSE | _EPERM),
            (_RETURN, 0, 0, _ALLOW),
        ]
    return [
        *steps,
        (_IF_EQUAL, 0, 3, calls.clone),
        (_LOAD, 0, 0, 16),  # its flags: a thread may be, a process may not
        (_IF_ANY, 1, 0, _CLONE_THREAD),
        (_RETURN, 0, 0, _REFUSE | _EPERM),
        (_RETURN, 0, 0, _ALLOW),
    ]
