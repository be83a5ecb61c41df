"""What the demos say, and how they end."""

from __future__ import annotations

import signal
import time
from types import FrameType

ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

began = time.monotonic()


def say(text: str) -> None:
    """One line of progress."""
    print(f"[{time.monotonic() - began:5.1f} s] {text}", flush=True)


def end_on_signals() -> None:
    """Let Ctrl-C and the like raise KeyboardInterrupt, also where we were started with SIGINT ignored."""
    for number in ENDING:
        signal.signal(number, _leave)


def _leave(number: int, frame: FrameType | None) -> None:
    """End everything, and let nothing interrupt that."""
    for each in ENDING:
        signal.signal(each, signal.SIG_IGN)
    raise KeyboardInterrupt
