"""clearhead train: from text and a recipe to a model, watched while it learns."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Annotated, Any, Self

import typer
from rich.console import Console, RenderableType
from rich.file_proxy import FileProxy
from rich.text import Text

from clearhead.cli.style import err, note, out, print_json, table_of, waiting
from clearhead.errors import ClearheadError, InputError

if TYPE_CHECKING:
    from rich.live import Live

    from clearhead.train import Recipe, TrainingResult, TrainingStage
    from clearhead.views.training import RunHistory

EVERY = 10.0  # seconds between two lines, where there is no terminal
TRIED = 3  # steps of a dry run
SILENT = 600.0  # seconds without news after which a watched run may have been stopped
STOPPING = "Finishing this step and writing a checkpoint; the same command goes on. Ctrl-C again stops at once."


def command(
    recipe: Annotated[
        str | None, typer.Argument(help="A YAML file, or the name of a shipped recipe (--list).", metavar="RECIPE")
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Argument(help="Change what the recipe says: data.train=my.txt steps=1000.", metavar="KEY=VALUE …"),
    ] = None,
    listing: Annotated[bool, typer.Option("--list", help="List the shipped recipes.")] = False,
    show: Annotated[
        bool, typer.Option("--show", help="Print the recipe. With settings: every key as it would be used.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Prepare, take three steps, say what to expect, keep nothing.")
    ] = False,
    watch: Annotated[
        Path | None, typer.Option(help="Look at a run in this folder, while it goes or later.", metavar="FOLDER")
    ] = None,
    plain: Annotated[bool, typer.Option("--plain", help="Lines instead of the live view.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Train a model as a recipe says.

    A recipe is a short YAML file: data, model, optimiser, how long. What it
    leaves open, or should be otherwise, is said behind it as key=value.

    Everything goes to the folder `out`: log, checkpoints, and at the end the
    model in `out`/model, to be used like any other.

    Ctrl-C stops after the step. The same command goes on where the run was,
    also after a crash, and ends with the same weights.

    Examples:

      clearhead train language-model data.train=my.txt out=runs/mine

      clearhead train language-model --show > mine.yaml

      clearhead train mine.yaml optimizer.lr=1e-3 steps=2000 --dry-run

      clearhead train --watch runs/mine

      torchrun --nproc-per-node 8 -m clearhead train mine.yaml
    """
    _check_together(
        {"--list": listing, "--watch": watch is not None, "--show": show, "--dry-run": dry_run},
        {"a recipe": recipe is not None, "--plain": plain, "--json": as_json},
    )
    if listing:
        _list()
        return
    if watch is not None:
        _watch(watch)
        return
    if recipe is None:
        raise InputError("Say which recipe: a file, or a shipped one (clearhead train --list).")
    from clearhead.zoo.recipes import find_recipe

    path, overrides = find_recipe(recipe), _complete(settings or [])
    if show and not overrides:
        sys.stdout.write(path.read_text(encoding="utf-8"))
        return
    is_main = int(os.environ.get("RANK", "0")) == 0
    with waiting("Getting ready …"):
        from clearhead.train.recipe_files import read_recipe, write_recipe
        from clearhead.train.run.stages import has_stages
    if has_stages(path):
        _stages(path, overrides, show, dry_run, plain, as_json)
        return
    try:
        checked = read_recipe(path, overrides)
    except ClearheadError:  # under torchrun every process reads the recipe, and one complains
        if is_main:
            raise
        raise typer.Exit(1) from None
    if show:
        sys.stdout.write(write_recipe(checked))
    elif dry_run:
        _dry_run(checked, as_json)
    else:
        _train(checked, is_main, plain, as_json)


def _check_together(modes: dict[str, bool], others: dict[str, bool]) -> None:
    """What would be passed over in silence is a mistake."""
    given = [name for name, is_given in modes.items() if is_given]
    alone = {"--list": list(others), "--watch": list(others), "--show": ["--plain", "--json"], "--dry-run": ["--plain"]}
    for name in given[:1]:
        beside = [*given[1:], *(other for other in alone[name] if others[other])]
        if beside:
            raise InputError(f"{name} and {beside[0]} do not go together: {beside[0]} would do nothing. Leave one out.")


def _complete(settings: list[str]) -> list[str]:
    """Held-out data that is named takes the place of a share of the training data that the recipe keeps back."""
    keys = {key.strip(): value.strip() for key, _, value in (setting.partition("=") for setting in settings)}
    named = any(f"{key}.".startswith("data.valid.") and value not in ("", "null", "~") for key, value in keys.items())
    return [*settings, "data.validation_fraction=0"] if named and "data.validation_fraction" not in keys else settings


def _list() -> None:
    from clearhead.zoo.recipes import recipes

    out().print(table_of(recipes()))
    note("\nRead one:  clearhead train language-model --show")
    note("That of a shipped model:  clearhead train stories --show")


# ---- a run


def _stages(path: Path, overrides: list[str], show: bool, dry_run: bool, plain: bool, as_json: bool) -> None:
    """A recipe of several runs, one after the other."""
    from clearhead.train import read_stages, train_stages, write_recipe

    if "RANK" in os.environ:
        raise InputError(
            "torchrun trains one recipe at a time, and this one has several stages. --show with your settings prints "
            "the recipe of each: keep them in files, and run them one by one."
        )
    stages = read_stages(path, overrides)
    if show:
        sys.stdout.write("---\n".join(f"# {stage.name}\n{write_recipe(stage.recipe)}" for stage in stages))
        return
    waits = [stage for stage in stages if not stage.is_finished()]
    if dry_run:
        if waits:
            note(f"Stage {waits[0].name}:")
            _dry_run(waits[0].recipe, as_json)
        return

    def run(stage: TrainingStage) -> TrainingResult:
        note(f"Stage {stages.index(stage) + 1} of {len(stages)}: {stage.name}")
        return _run(stage.recipe, True, plain)

    result = train_stages(stages, run, on_skip=lambda stage: note(f"{stage.name} is done: {stage.recipe.out}"))
    if result is None:
        note("All stages are done. Set out= to begin anew.")
        return
    ran = next(stage for stage in stages if Path(stage.recipe.out).expanduser() == result.folder)
    _tell(result, ran.recipe, as_json)


def _train(recipe: Recipe, is_main: bool, plain: bool, as_json: bool) -> None:
    result = _run(recipe, is_main, plain)
    if is_main:
        _tell(result, recipe, as_json)


def _run(recipe: Recipe, is_main: bool, plain: bool) -> TrainingResult:
    if is_main:
        note(f"Preparing {recipe.out} …")
    watcher = _Lines() if plain or not is_main or not err().is_terminal else _View()
    try:
        with watcher:
            from clearhead.train import train

            return train(recipe, watchers=[watcher])
    except KeyboardInterrupt:
        if is_main:
            note("Stopped. The same command goes on from the last checkpoint, if there was one.")
        raise typer.Exit(130) from None


def _tell(result: TrainingResult, recipe: Recipe, as_json: bool) -> None:
    if as_json:
        print_json({"finished": result.finished, "step": result.step, "metrics": result.metrics, "test": result.test,
                    "model": str(result.model) if result.finished else None})  # fmt: skip
    else:
        _print_result(result, recipe)
    if not result.finished:
        raise typer.Exit(130)


def _print_result(result: TrainingResult, recipe: Recipe) -> None:
    """What came out of it, and what to do next."""
    from clearhead.cli.next_command import next_command
    from clearhead.views.training import measures

    if not result.finished:
        note(f"Stopped after step {result.step:,}. The same command goes on from there.")
        return
    rows = {"held out": measures(result.metrics), "test": measures(result.test), "model": f"{result.model}"}
    out().print()
    out().print(table_of({name: value for name, value in rows.items() if value}))
    out().print(f"\nTry it:\n\n  {next_command(recipe, result.model)}\n", markup=False, soft_wrap=True)


class _Lines:
    """A line now and then: for a file, a pipe, or a terminal that should stay quiet."""

    def __init__(self) -> None:
        self.printed = -EVERY  # when a step was last printed
        self.unit = "unit"
        self.listens = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def __call__(self, event: dict[str, Any]) -> None:
        from clearhead.views.training import line_of

        if event["event"] == "begin":
            self.unit = event["unit"]
        if event["event"] == "step" and not self.listens:
            self.listens = _on_signals(lambda: os.write(2, f"{STOPPING}\n".encode()))
        if event["event"] == "step":
            now = time.monotonic()
            if now - self.printed < EVERY and event["step"] != event["steps"]:
                return
            self.printed = now
        line = line_of(event, self.unit)
        if line is not None:
            print(line, file=sys.stderr, flush=True)


class _View:
    """The live picture. It starts with the run; before that, tokenising has its own bar."""

    def __init__(self) -> None:
        from clearhead.views.training import RunHistory

        self.history = RunHistory()
        self.newest = time.monotonic()
        self.stopping = False
        self.stderr = sys.stderr
        self.console = Console(file=self.stderr, highlight=False)
        self.live: Live | None = None
        self.listens = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.live is not None:
            self.live.stop()
            sys.stderr = self.stderr

    def __call__(self, event: dict[str, Any]) -> None:
        self.history.add(event)
        self.newest = time.monotonic()
        if event["event"] == "note":
            self.console.print(event["text"], style="dim", markup=False)
        elif event["event"] == "begin":
            self._begin()
        elif event["event"] == "step" and not self.listens:
            self.listens = _on_signals(self._stop)

    def _begin(self) -> None:
        from rich.live import Live

        self.live = Live(
            console=self.console, get_renderable=self.picture, refresh_per_second=2, redirect_stdout=False,
            redirect_stderr=False,
        )  # fmt: skip
        self.live.start()
        sys.stderr = _Above(self.console, self.stderr)

    def _stop(self) -> None:
        self.stopping = True

    def picture(self) -> RenderableType:
        words = Text(STOPPING) if self.stopping else Text("Ctrl-C stops; the same command goes on.", style="dim")
        return _picture(self.history, self.console, time.monotonic() - self.newest, words)


def _picture(history: RunHistory, console: Console, idle_seconds: float, footer: Text) -> RenderableType:
    from clearhead.views.training import draw

    height = console.height - 1 if console.is_terminal else 50
    return draw(history, console.width, height, idle_seconds, None if history.end else footer)


class _Above(FileProxy):
    """What others write to standard error while the picture stands: it appears above, as plain lines."""

    @property
    def rich_proxied_file(self) -> Any:  # other consoles write here too
        return self

    def isatty(self) -> bool:
        return False


def _on_signals(announce: Callable[[], object]) -> bool:
    """Say something at Ctrl-C; be silent from then on where the terminal is closed. The rest is left to the loop, which
    listens while it takes steps."""
    if threading.current_thread() is threading.main_thread():
        _prepend_handler(signal.SIGINT, announce)
        if hasattr(signal, "SIGHUP"):
            terminals = [number for number in (1, 2) if os.isatty(number)]  # asked of a closed one, it says no
            _prepend_handler(signal.SIGHUP, lambda: _redirect_to_devnull(terminals))
    return True


def _prepend_handler(number: signal.Signals, first: Callable[[], object]) -> None:
    """Do something before what is done at a signal, unless it is ignored."""
    handler = signal.getsignal(number)
    if callable(handler):

        def both(number: int, frame: FrameType | None) -> None:
            first()
            handler(number, frame)

        signal.signal(number, both)


def _redirect_to_devnull(descriptors: list[int]) -> None:
    """What is written to a terminal that is gone would be an error: it goes nowhere."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for number in descriptors:
        os.dup2(nowhere, number)


# ---- before a run, and beside it


def _dry_run(recipe: Recipe, as_json: bool) -> None:
    """The beginning of the run, in a folder that is thrown away."""
    if "RANK" in os.environ:
        raise InputError("A dry run is for one process: leave torchrun out.")
    note(f"Preparing as the run would, and taking {TRIED} steps …")
    events: list[dict[str, Any]] = []

    class Enough(Exception):
        pass

    def watch(event: dict[str, Any]) -> None:
        events.append(event)
        if event["event"] == "step" and event["step"] >= TRIED:
            raise Enough

    from clearhead.train import train

    with TemporaryDirectory() as folder, suppress(Enough):
        data = replace(recipe.data, cache=None)
        train(replace(recipe, out=str(Path(folder) / "run"), data=data, log_every=1), watchers=[watch])
    begin = next(event for event in events if event["event"] == "begin")
    first, *_, step = (event for event in events if event["event"] == "step")
    from clearhead.views.training import amount, number, roughly

    epochs = begin["steps"] / max(begin["steps_per_epoch"], 1)
    total = roughly(step["eta"] * begin["steps"] / max(begin["steps"] - step["step"], 1))
    pace = f"{step['units_per_second']:,.0f} {begin['unit']}s/s on {begin['device']}, {begin['precision']}"
    facts = {
        "model": f"{begin['family']}, {amount(begin['parameters'])} parameters, {begin['objective']}",
        "data": f"{begin['examples']:,} examples, {begin['steps_per_epoch']:,} steps an epoch",
        "run": f"{begin['steps']:,} steps, {epochs:,.2f} epochs",
        "time": f"about {total} at {pace}, without evaluations" if step["eta"] else pace,
        "memory": _memory(begin["device"]),
        "first loss": number(first["loss"]),
    }
    if as_json:
        plain = {key: value for key, value in begin.items() if key not in ("event", "step", "out")}
        print_json(plain | {"units_per_second": step["units_per_second"], "first_loss": first["loss"]})
    else:
        out().print(table_of(facts))
    note(f"Nothing was kept. Without --dry-run the run goes to {recipe.out}.")


def _memory(device: str) -> str:
    """The most that was needed, as far as it can be measured."""
    import torch

    if device.startswith("cuda"):
        return f"{torch.cuda.max_memory_allocated() / 2**30:,.1f} GiB of the GPU's at most"
    import resource

    unit = 1 if sys.platform == "darwin" else 1024
    return (
        f"{resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 2**30:,.1f} GiB at most, for the whole process"
    )


def _watch(folder: Path) -> None:
    """The picture of a run that goes on elsewhere, from its log."""
    path = folder.expanduser() / "log.jsonl"
    if not path.is_file():
        raise InputError(f"{folder} holds no log of a run (log.jsonl). Give the folder that the recipe calls out.")
    with waiting("Getting ready …"):
        from clearhead.train.engine.log import read_log

    def picture() -> RenderableType:
        idle_seconds = time.time() - path.stat().st_mtime
        quiet = f"Nothing new for {roughly(idle_seconds)}: has the run been stopped?" if idle_seconds > SILENT else ""
        history = history_of(read_log(path))
        ended[0] = bool(history.end)
        return _picture(
            history, console, idle_seconds, Text(quiet or "Ctrl-C ends the view; the run goes on.", style="dim")
        )

    from rich.live import Live

    from clearhead.views.training import history_of, roughly

    console, ended = out(), [False]
    if not console.is_terminal:
        console.print(picture())
        return
    with suppress(KeyboardInterrupt), Live(picture(), console=console, auto_refresh=False) as live:
        while not ended[0]:
            time.sleep(1)
            live.update(picture(), refresh=True)
