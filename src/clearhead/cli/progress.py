"""How far a long job is: a bar on a terminal, once it has taken a moment; elsewhere a line now and then."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Timer

from clearhead.cli.style import err, note

Watch = Callable[[str, int, int], None]  # what is being done, how much of it is, how much there is
LINE_INTERVAL = 10.0  # seconds between two lines, where there is no terminal
PATIENCE = 2.0  # seconds that a job may take without a bar


@contextmanager
def progress(quiet: bool = False) -> Iterator[Watch]:
    """quiet: nothing is shown, because the results themselves are being printed."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    console, last_line = err(), time.monotonic()
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    bars = Progress(*columns, console=console, transient=True)
    bar = bars.add_task("", total=None)
    later = Timer(PATIENCE, bars.start)
    later.daemon = True

    def watch(doing: str, done: int, total: int) -> None:
        nonlocal last_line
        bars.update(bar, description=doing, completed=done, total=total)
        if not console.is_terminal and not quiet and time.monotonic() - last_line > LINE_INTERVAL:
            note(f"{doing}: {done:,} of {total:,}")
            last_line = time.monotonic()

    if console.is_terminal and not quiet:
        later.start()
    try:
        yield watch
    finally:
        later.cancel()
        if bars.live.is_started:
            bars.stop()
