"""clearhead bench decode: how fast this machine writes, beside whichever peers are installed, in one run.

The sides take turns and are compared by their medians, because machines are noisy. Each peer lives in a process of its
own: two libraries that share an OpenMP runtime slow each other down. Peers that are not installed are left out.
`benchmarks/decode_cpu.py` calls the same functions and holds the results against the project's bars.
"""

from __future__ import annotations

import atexit
import importlib
import importlib.util
import json
import multiprocessing
import random
import signal
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from clearhead.cli.style import MODEL_HELP, err, note, out, print_json
from clearhead.errors import InputError

if TYPE_CHECKING:
    from clearhead.models import Model

PROMPT, NEW, LONG, BEAMS = 64, 64, 1024, 4
JOBS = {"write": f"{PROMPT} prompt + {NEW} new", "beam": f"{BEAMS} beams, {NEW} new", "prefill": "a long prompt"}

app = typer.Typer(help="Measure this machine.", no_args_is_help=True)


@dataclass(frozen=True)
class BenchmarkSide:
    """One library at one precision: a function for each job it can do."""

    library: str  # clearhead, transformers, ctranslate2
    precision: str
    weight_bytes: int  # read once for each token
    long: int  # tokens of the long prompt
    jobs: dict[str, Callable[[], Any]]

    @property
    def name(self) -> str:
        return f"{self.library} {self.precision}"


@dataclass(frozen=True)
class DecodeMeasurement:
    library: str
    precision: str
    job: str
    tokens_per_second: float  # write and beam: new tokens of the answer; prefill: tokens read
    rounds: int
    gigabytes_per_second: float | None = None  # write: weights read in that time

    @property
    def name(self) -> str:
        return f"{self.library} {self.precision}"


def in_turns(
    sides: list[BenchmarkSide], rounds: int, jobs: tuple[str, ...], done: Callable[[str], None]
) -> list[DecodeMeasurement]:
    """Each job of each side once in a round, in random order. An interrupt ends it: what was measured is returned."""
    todo = [(side, job) for job in jobs for side in sides if job in side.jobs]
    seconds: dict[tuple[str, str], list[float]] = {}
    try:
        for n in range(rounds + 1):
            random.shuffle(todo)
            for side, job in todo:
                start = time.perf_counter()
                side.jobs[job]()
                if n:  # the first round only warms up
                    seconds.setdefault((side.name, job), []).append(time.perf_counter() - start)
                done(f"{side.name}: {JOBS[job]}")
    except KeyboardInterrupt:
        note("Stopped; what was measured so far:")
    results = []
    for job in jobs:
        for side in sides:
            measured = seconds.get((side.name, job))
            if not measured:
                continue
            speed = (side.long if job == "prefill" else NEW) / statistics.median(measured)
            read = speed * side.weight_bytes / 1e9 if job == "write" else None
            results.append(DecodeMeasurement(side.library, side.precision, job, speed, len(measured), read))
    return results


def bandwidth(repeats: int = 7) -> float:
    """How many GB/s this machine reads with torch's threads."""
    import torch

    numbers = torch.ones(96 * 2**20)  # 400 MB: more than any cache
    best = float("inf")
    for _ in range(repeats):
        start = time.perf_counter()
        numbers.sum()
        best = min(best, time.perf_counter() - start)
    return numbers.numel() * 4 / best / 1e9


@contextmanager
def random_gpt2(**sizes: Any) -> Iterator[Path]:
    """A folder with GPT-2 124M, its weights drawn at random, and files enough for every peer to open it."""
    import torch

    from clearhead import hub, models

    with tempfile.TemporaryDirectory(prefix="clearhead-bench-") as parent:
        folder = Path(parent) / "gpt2"
        torch.manual_seed(0)
        family = models.family("gpt2")
        config = family.config(**sizes)
        hub.save_model(family.make(config), folder)
        last = config.vocab_size - 1
        words = {f"t{n}": n for n in range(last)} | {"<|endoftext|>": last}
        model = {"type": "WordLevel", "vocab": words, "unk_token": "<|endoftext|>"}
        split = {"type": "WhitespaceSplit"}
        tokenizer = {"version": "1.0", "added_tokens": [], "pre_tokenizer": split, "model": model}
        (folder / "tokenizer.json").write_text(json.dumps(tokenizer), encoding="utf-8")
        tokenizer_config = dict.fromkeys(("bos_token", "eos_token", "unk_token"), "<|endoftext|>")
        tokenizer_config["tokenizer_class"] = "PreTrainedTokenizerFast"
        (folder / "tokenizer_config.json").write_text(json.dumps(tokenizer_config), encoding="utf-8")
        yield folder


def clearhead_sides(
    folder: Path, precisions: tuple[str, ...] = ("float32", "bfloat16", "int8", "int4")
) -> list[BenchmarkSide]:
    from clearhead import hub
    from clearhead.nn.fast import cpu_kernels

    cpu_kernels.load()
    sides = []
    for precision in precisions:
        rounded = precision.startswith("int")
        model = hub.load_model(folder, dtype=None if rounded else precision, quantize=precision if rounded else None)
        long = _long(model)
        jobs = _torch_jobs(model.generate, model.config.vocab_size, long)
        sides.append(BenchmarkSide("clearhead", precision, _bytes(model), long, jobs))
    return sides


def _long(model: Model) -> int:
    """The long prompt: 1,024 tokens, or as many as fit before one more."""
    if model.is_encoder_decoder or not model.can_generate:
        raise InputError(f"bench decode measures models that continue a text; this one is for {model.task}.")
    limit = model.max_length
    if limit is not None and limit < PROMPT + NEW:
        raise InputError(f"The model has {limit} positions, and the comparison writes {PROMPT + NEW} tokens.")
    return min(LONG, LONG if limit is None else limit - 1)


def transformers_sides(
    folder: Path, long: int, precisions: tuple[str, ...] = ("float32", "bfloat16")
) -> list[BenchmarkSide]:
    import torch
    import transformers

    transformers.logging.set_verbosity_error()
    sides = []
    for precision in precisions:
        model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=getattr(torch, precision)).eval()
        model.generation_config.pad_token_id = model.config.eos_token_id
        jobs = _torch_jobs(model.generate, model.config.vocab_size, long)
        sides.append(BenchmarkSide("transformers", precision, _bytes(model), long, jobs))
    return sides


def ctranslate2_sides(
    folder: Path, long: int, threads: int, precisions: tuple[str, ...] = ("float32", "int8")
) -> list[BenchmarkSide]:
    ctranslate2 = importlib.import_module("ctranslate2")
    converter = importlib.import_module("ctranslate2.converters").TransformersConverter

    scratch = tempfile.mkdtemp(prefix="ct2-", dir=folder.parent)
    converted = converter(str(folder)).convert(f"{scratch}/model", force=True)
    words = json.loads((Path(converted) / "vocabulary.json").read_text(encoding="utf-8"))
    sides = []
    for precision in precisions:
        model = ctranslate2.Generator(converted, compute_type=precision, intra_threads=threads, inter_threads=1)

        def write(length: int, new: int, beams: int = 1, model: Any = model) -> None:
            model.generate_batch(
                [[words[n] for n in _ids(length, len(words))]], max_length=new, min_length=new, beam_size=beams,
                sampling_topk=1, include_prompt_in_result=False,
            )  # fmt: skip

        jobs: dict[str, Callable[[], Any]] = {
            "write": partial(write, PROMPT, NEW),
            "beam": partial(write, PROMPT, NEW, BEAMS),
            "prefill": partial(write, long, 1),
        }
        size = sum(f.stat().st_size for f in Path(converted).glob("model.bin"))
        sides.append(BenchmarkSide("ctranslate2", precision, size // (4 if precision == "int8" else 1), long, jobs))
    return sides


def all_sides(folder: Path, threads: int, peers: bool = True) -> list[BenchmarkSide]:
    """Clearhead, and every installed peer that can open the folder."""
    import torch

    torch.set_num_threads(threads)
    sides = clearhead_sides(folder)
    for name in ("transformers", "ctranslate2") if peers else ():
        if importlib.util.find_spec(name) is None:
            note(f"{name} is not installed and stays out of the comparison.")
            continue
        try:
            sides += peer_sides(name, folder, sides[0].long, threads)
        except InputError as error:  # a peer's trouble is not ours
            note(f"{name} could not open the model: {error}")
    return sides


def peer_sides(library: str, folder: Path, long: int, threads: int) -> list[BenchmarkSide]:
    """A peer's sides, in a process of its own that waits for its turn."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_serve, args=(theirs, library, folder, long, threads), daemon=True)
    process.start()
    theirs.close()
    atexit.register(_dismiss, ours, process)
    reply = ours.recv()
    if isinstance(reply, str):
        raise InputError(reply)

    def job(number: int, name: str) -> None:
        ours.send((number, name))
        if (problem := ours.recv()) is not None:
            raise InputError(f"{library} could not go on: {problem}")

    return [
        BenchmarkSide(library, precision, size, long, {name: partial(job, number, name) for name in jobs})
        for number, (precision, size, jobs) in enumerate(reply)
    ]


def _dismiss(pipe: Any, process: Any) -> None:
    """Nobody asks any more: let the process end by itself."""
    pipe.close()
    process.join(5)


def _serve(pipe: Any, library: str, folder: Path, long: int, threads: int) -> None:
    """The other process: open the folder, then do the jobs that are asked for, until nobody asks any more."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # an interrupt is for the one who asks
    try:
        if library == "transformers":
            import torch

            torch.set_num_threads(threads)
            sides = transformers_sides(folder, long)
        else:
            sides = ctranslate2_sides(folder, long, threads)
        pipe.send([(side.precision, side.weight_bytes, list(side.jobs)) for side in sides])
    except Exception as error:
        pipe.send(str(error).splitlines()[0][:200] if str(error) else repr(error))
        return
    with suppress(EOFError, OSError):
        while True:
            number, name = pipe.recv()
            try:
                sides[number].jobs[name]()
                pipe.send(None)
            except Exception as error:
                pipe.send(repr(error)[:200])


def _torch_jobs(generate: Callable[..., Any], vocabulary: int, length: int) -> dict[str, Callable[[], Any]]:
    import torch

    short, long = (torch.tensor([_ids(n, vocabulary)]) for n in (PROMPT, length))
    new = {"max_new_tokens": NEW, "min_new_tokens": NEW, "do_sample": False}
    return {
        "write": lambda: generate(short, attention_mask=torch.ones_like(short), **new),
        "beam": lambda: generate(short, attention_mask=torch.ones_like(short), num_beams=BEAMS, **new),
        "prefill": lambda: generate(long, attention_mask=torch.ones_like(long), max_new_tokens=1, do_sample=False),
    }


def _ids(length: int, vocabulary: int) -> list[int]:
    rng = random.Random(length)
    return [rng.randrange(vocabulary - 1) for _ in range(length)]


def _bytes(model: Any) -> int:
    """What a token reads: all weights but the positions, of which it needs one row (a small difference)."""
    return sum(t.numel() * t.element_size() for t in [*model.parameters(), *model.buffers()])


def show(results: list[DecodeMeasurement], baseline: str = "transformers float32") -> None:
    """The table: tokens per second, and how many times the given side."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("tokens/s")
    for job in JOBS:
        table.add_column(JOBS[job], justify="right")
    table.add_column("reads", justify="right")
    by = {(r.name, r.job): r for r in results}
    for name in dict.fromkeys(r.name for r in results):
        cells, read = [], ""
        for job in JOBS:
            result, base = by.get((name, job)), by.get((baseline, job))
            ratio = f" ({result.tokens_per_second / base.tokens_per_second:.1f}×)" if result and base else ""
            cells.append(f"{result.tokens_per_second:.1f}{ratio}" if result else "")
            if result and result.gigabytes_per_second:
                read = f"{result.gigabytes_per_second:.1f} GB/s"
        table.add_row(name, *cells, read)
    out().print(table)
    if any(name == baseline for name, _ in by):
        out().print(f"In brackets: times {baseline}.", style="dim")


@app.command("decode")
def decode(
    model: Annotated[
        str | None, typer.Option("--model", "-m", help=f"{MODEL_HELP} Default: GPT-2 124M with random weights.")
    ] = None,
    threads: Annotated[int | None, typer.Option(min=1, max=1024, help="CPU threads; default: torch's own.")] = None,
    rounds: Annotated[int, typer.Option(help="How often each side runs.", min=1)] = 5,
    peers: Annotated[bool, typer.Option(help="Measure transformers and CTranslate2 too, where installed.")] = True,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
) -> None:
    """Tokens per second on this CPU: writing, beam search and reading a long prompt, beside the peers.

    Ctrl-C stops early and prints what was measured.

    Example:

      clearhead bench decode --threads 2
    """
    from rich.progress import Progress

    with err().status("Getting ready …"):
        import torch

        from clearhead import hub

    used = threads or torch.get_num_threads()
    with random_gpt2() if model is None else _open_folder(model, hub) as folder:
        with err().status("Loading every side …"):
            sides = all_sides(folder, used, peers)
            speed = bandwidth()
        total = (rounds + 1) * sum(len(side.jobs) for side in sides)
        with Progress(console=err(), transient=True, disable=not err().is_terminal) as progress:
            bar = progress.add_task("", total=total)
            results = in_turns(
                sides,
                rounds,
                tuple(JOBS),
                lambda side_and_job: progress.update(bar, advance=1, description=side_and_job),
            )
    if as_json:
        data = {"threads": used, "bandwidth_gigabytes_per_second": speed, "results": [asdict(r) for r in results]}
        print_json(data)
        return
    show(results)
    out().print(f"{used} thread{'s' if used > 1 else ''}; this machine reads {speed:.1f} GB/s.", style="dim")


@contextmanager
def _open_folder(model: str, hub: Any) -> Iterator[Path]:
    """The model's folder, beside which peers may put their own files: a copy of its names in a private folder."""
    from clearhead import zoo
    from clearhead.pipeline import load

    with tempfile.TemporaryDirectory(prefix="clearhead-bench-") as parent:
        folder = Path(parent) / "model"
        if not Path(model).is_dir() and model in zoo.cards():  # packed in a way that only Clearhead reads
            load(model).save(folder)
            yield folder
            return
        source = hub.transformer_folder(hub.locate(model, hint=zoo.hint(model)))
        folder.mkdir()
        for file in source.iterdir():
            if file.is_file():
                (folder / file.name).symlink_to(file.resolve())
        yield folder
