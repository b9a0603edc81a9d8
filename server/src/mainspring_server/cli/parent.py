"""A process that ends with the one that started it, even when that one is killed outright."""

from __future__ import annotations

import os
import signal
import sys
import threading

_PR_SET_PDEATHSIG = 1
_LOOK_EVERY_S = 0.5


def stop_with(pid: int) -> None:
    """Send this process SIGTERM once its parent, process `pid`, is gone.

    Linux's kernel does it; elsewhere a thread looks for the parent. A parent that is gone already
    stops this process at once.
    """
    if sys.platform == "linux":
        _ask_kernel()
    else:
        threading.Thread(target=_look, args=(pid,), daemon=True, name="parent").start()
    if os.getppid() != pid:
        # It ended before it could be asked for: nobody would send the signal.
        os.kill(os.getpid(), signal.SIGTERM)


def _ask_kernel() -> None:
    import ctypes

    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"prctl: {os.strerror(number)}")


def _look(pid: int) -> None:
    never = threading.Event()
    while os.getppid() == pid:
        never.wait(_LOOK_EVERY_S)
    os.kill(os.getpid(), signal.SIGTERM)
