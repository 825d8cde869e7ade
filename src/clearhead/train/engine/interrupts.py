"""Ctrl-C, a friendly kill, a terminal that is closed: the step is finished and a checkpoint written before the end."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

SIGNALS = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)]


class StopRequest:
    """Whether somebody has asked the run to stop. A second Ctrl-C stops at once."""

    def __init__(self) -> None:
        self.requested = False

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Inside, signals are heard; only a process's first thread can."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return

        def request(number: int, frame: FrameType | None) -> None:
            if self.requested and number == signal.SIGINT:
                raise KeyboardInterrupt
            self.requested = True

        # what is ignored stays so: SIGHUP under nohup
        signals = [number for number in SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]
        handlers = {number: signal.signal(number, request) for number in signals}
        try:
            yield
        finally:
            for number, handler in handlers.items():
                signal.signal(number, handler)
