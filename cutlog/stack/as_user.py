"""Become another user, then the given command: `as_user.py UID GID COMMAND...`, as root.

The checkout may lie where that user can't go (`/root` is 0700 on Debian). Only then the command
keeps root's right to read and to enter folders, and nothing else of root's rights. It stands alone
and uses the standard library only, since it runs before anything else does, in a process of its own
(the same as a `preexec_fn`, which is not safe beside threads).
"""

import ctypes
import os
import stat
import sys
from pathlib import Path

_PR_SET_SECUREBITS = 28
_SECBIT_NO_SETUID_FIXUP = 1 << 2
_PR_CAP_AMBIENT = 47
_PR_CAP_AMBIENT_RAISE = 2
_CAP_DAC_READ_SEARCH = 2
_CAPABILITY_VERSION_3 = 0x20080522


class _Header(ctypes.Structure):
    _fields_ = (("version", ctypes.c_uint32), ("pid", ctypes.c_int))


class _Data(ctypes.Structure):
    _fields_ = (
        ("effective", ctypes.c_uint32),
        ("permitted", ctypes.c_uint32),
        ("inheritable", ctypes.c_uint32),
    )


def main(argv: list[str]) -> None:
    """Never returns."""
    uid, gid, command = int(argv[0]), int(argv[1]), argv[2:]
    libc = ctypes.CDLL(None, use_errno=True)
    walled = not all(_enterable(Path(word), uid) for word in command if word.startswith("/"))
    os.chdir("/")
    os.umask(0o077)
    os.setgroups([])
    os.setgid(gid)
    if walled:
        # With it, rights outlive the change of user, and access(2), by which initdb looks for its
        # server, counts them.
        _check(libc.prctl(_PR_SET_SECUREBITS, _SECBIT_NO_SETUID_FIXUP, 0, 0, 0))
    os.setuid(uid)
    if walled:
        keep = 1 << _CAP_DAC_READ_SEARCH
        header = _Header(_CAPABILITY_VERSION_3, 0)
        data = (_Data * 2)(_Data(keep, keep, keep), _Data(0, 0, 0))
        _check(libc.capset(ctypes.byref(header), ctypes.byref(data)))
        _check(libc.prctl(_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_RAISE, _CAP_DAC_READ_SEARCH, 0, 0))
    os.execv(command[0], command)  # noqa: S606 - a shell is what we do not want


def _enterable(path: Path, uid: int) -> bool:
    """Whether that user gets through every folder on the way to `path` by its plain rights."""
    for folder in path.resolve().parents:
        about = folder.stat()
        if not about.st_mode & (stat.S_IXUSR if about.st_uid == uid else stat.S_IXOTH):
            return False
    return True


def _check(answer: int) -> None:
    if answer != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))


if __name__ == "__main__":
    main(sys.argv[1:])
