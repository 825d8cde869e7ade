"""Classifying texts of mixed length on the CPU, beside a transformers pipeline over the same folder, in one run.

    python benchmarks/classify_cpu.py [texts] [threads] [rounds]

The model is the shipped `sentiment`, saved to a folder that both sides open in fp32. The texts are random words; most
are short and some long, as reviews and messages are. The pipeline runs one text at a time, as it does by default, and
with every batch size of BATCH_SIZES, of which the best counts; the sides take turns, and medians are compared. Both
must give the same scores. Where the machine is busy, the seconds that the processor worked are the steadier measure.
"""

from __future__ import annotations

import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch

import clearhead as ch

BATCH_SIZES = (1, 8, 32)
BAR = 1.5


def mixed_texts(count: int, words: list[str]) -> list[str]:
    """From a few words to some hundreds, half of the texts below 30."""
    rng = random.Random(0)
    lengths = [min(300, max(3, round(rng.lognormvariate(3.4, 0.9)))) for _ in range(count)]
    return [" ".join(rng.choices(words, k=length)) for length in lengths]


def timed(run: Callable[[], object]) -> tuple[float, float]:
    """Seconds on the clock, and of the processor."""
    wall, worked = time.perf_counter(), time.process_time()
    run()
    return time.perf_counter() - wall, time.process_time() - worked


def main(count: int = 1000, threads: int = 2, rounds: int = 3) -> None:
    import transformers

    torch.set_num_threads(threads)
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "sentiment"
        ch.load("sentiment", dtype="float32").save(folder)
        ours = ch.load(folder)
        theirs = transformers.pipeline("text-classification", model=str(folder), device="cpu", top_k=None)
    words = [word for word in ours.tokenizer.get_vocab() if word.isalpha() and len(word) > 1]
    texts = mixed_texts(count, words)
    tokens = [len(ours.tokenizer.encode(text)) for text in texts]
    print(f"{count} texts of {min(tokens)} to {max(tokens)} tokens, {statistics.median(tokens):.0f} in the middle")
    print(f"transformers {transformers.__version__}, torch {torch.__version__}, {threads} threads, median of {rounds}")

    few = texts[:50]
    for labels, expected in zip(ours.classify(few), theirs(few), strict=True):
        for one, other in zip(labels, expected, strict=True):
            assert one.label == other["label"] and abs(one.score - other["score"]) < 1e-5, (one, other)

    sides: dict[str, Callable[[], object]] = {"clearhead": lambda: ours.classify(texts)}
    for size in BATCH_SIZES:
        sides[f"transformers, batch_size={size}"] = lambda size=size: theirs(texts, batch_size=size)
    taken: dict[str, list[tuple[float, float]]] = {name: [] for name in sides}
    for _ in range(rounds):
        for name, run in sides.items():
            taken[name].append(timed(run))
    medians = {
        name: [statistics.median(column) for column in zip(*times, strict=True)] for name, times in taken.items()
    }
    wall, worked = medians.pop("clearhead")
    print(f"{'clearhead':28} {wall:7.2f} s  {worked:7.2f} s of work")
    for name, (their_wall, their_work) in medians.items():
        ratios = f"{their_wall / wall:.2f} × ({their_work / worked:.2f} × the work)"
        print(f"{name:28} {their_wall:7.2f} s  {their_work:7.2f} s of work   {ratios}")
    best = min(their_wall for their_wall, _ in medians.values())
    print(f"against the best: {best / wall:.2f} × (bar: {BAR})")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
