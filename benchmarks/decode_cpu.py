"""Decoding on the CPU beside transformers and CTranslate2, held against the project's bars: GPT-2 124M, two threads.

    python benchmarks/decode_cpu.py [rounds] [threads]

The measuring code is `clearhead bench decode`'s own. Sides take turns; medians are compared. Needs a quiet machine.
"""

from __future__ import annotations

import sys

from clearhead.cli.bench import JOBS, DecodeMeasurement, all_sides, bandwidth, in_turns, random_gpt2, show

# (job, our side, how many times, whose)
BARS = [
    ("write", "clearhead float32", 1.9, "transformers float32"),
    ("write", "clearhead int8", 1.25, "ctranslate2 int8"),
    ("write", "clearhead int4", 2.5, "ctranslate2 int8"),
    ("beam", "clearhead float32", 3.0, "transformers float32"),
    ("prefill", "clearhead float32", 2.0, "transformers float32"),
    ("prefill", "clearhead bfloat16", 2.0, "transformers float32"),  # the bar names no precision
    ("prefill", "clearhead int8", 2.0, "transformers float32"),  # what quantize="auto" takes where these were measured
    ("prefill", "clearhead int4", 2.0, "transformers float32"),
]


def judge(results: list[DecodeMeasurement]) -> None:
    by = {(r.name, r.job): r.tokens_per_second for r in results}
    for job, ours, bar, theirs in BARS:
        if (ours, job) in by and (theirs, job) in by:
            ratio = by[ours, job] / by[theirs, job]
            word = "reached" if ratio >= bar else "MISSED"
            print(f"{JOBS[job]:22} {ours:18} {ratio:5.2f} × {theirs:22} bar {bar:4.2f}  {word}")


if __name__ == "__main__":
    rounds, threads = (int(a) for a in (sys.argv[1:] + ["5", "2"][len(sys.argv) - 1 :]))
    with random_gpt2() as folder:
        sides = all_sides(folder, threads)
        speed = bandwidth()
        results = in_turns(sides, rounds, tuple(JOBS), lambda said: None)
    show(results)
    print(f"{threads} threads; this machine reads {speed:.1f} GB/s.\n")
    judge(results)
