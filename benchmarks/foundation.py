"""What the foundation costs: start-up, glass walls on and off, loading; beside `transformers` in the same run.

Prints ratios. Machines are noisy: sides are timed in turns and compared by their medians.
"""

from __future__ import annotations

import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch


def in_turns(sides: dict[str, Callable[[], object]], rounds: int = 15) -> dict[str, float]:
    """Median seconds of each side, one call of each per round."""
    times: dict[str, list[float]] = {name: [] for name in sides}
    for side in sides.values():
        side()
    order = list(sides.items())
    for _ in range(rounds):
        random.shuffle(order)  # what ran before leaves its mark on the caches
        for name, side in order:
            start = time.perf_counter()
            side()
            times[name].append(time.perf_counter() - start)
    return {name: statistics.median(t) for name, t in times.items()}


def python(code: str, *args: str) -> str:
    return subprocess.run([sys.executable, "-c", code, *args], capture_output=True, text=True, check=True).stdout


def start_up() -> None:
    print("Start-up")
    command = str(Path(sys.executable).parent / "clearhead")
    sides = {
        "python -c pass": lambda: subprocess.run([sys.executable, "-c", "pass"], check=True),
        "import clearhead": lambda: subprocess.run([sys.executable, "-c", "import clearhead"], check=True),
        "clearhead --help": lambda: subprocess.run([command, "--help"], check=True, capture_output=True),
        "import torch": lambda: subprocess.run([sys.executable, "-c", "import torch"], check=True),
        "clearhead.load": lambda: subprocess.run([sys.executable, "-c", "import clearhead as c; c.load"], check=True),
    }
    for name, seconds in in_turns(sides, rounds=5).items():
        print(f"  {name:20} {seconds * 1000:7.0f} ms")


def glass_walls() -> None:
    import transformers

    import clearhead.nn as blocks
    from clearhead.models.gpt2 import FAMILY, GPT2Config
    from clearhead.nn import trace

    ours = FAMILY.make(GPT2Config())
    config = transformers.GPT2Config()
    theirs = transformers.GPT2LMHeadModel(config).eval()
    eager = transformers.GPT2LMHeadModel._from_config(config, attn_implementation="eager").eval()
    ids = torch.randint(0, 50257, (1, 128))
    modules = [sys.modules[f"clearhead.nn.{m}"] for m in ("attention", "block", "embedding", "feedforward", "stack")]
    real = blocks.tap

    def without_taps() -> None:
        for module in modules:
            module.tap = lambda m, n, t: t
        ours(ids)
        for module in modules:
            module.tap = real

    def watching(*patterns: str) -> Callable[[], None]:
        def run() -> None:
            with trace(ours, *patterns):
                ours(ids)

        return run

    with torch.no_grad():
        t = in_turns(
            {
                "plain": lambda: ours(ids),
                "taps removed": without_taps,
                "all hidden states": watching("layers.*.output"),
                "all attention weights": watching("layers.*.attention.weights"),
                "weights and hidden states": watching("layers.*.attention.weights", "layers.*.output"),
                "transformers, plain": lambda: theirs(ids),
                "transformers, output_attentions": lambda: eager(
                    ids, output_attentions=True, output_hidden_states=True
                ),
            }
        )
    print("Glass walls: GPT-2 124M (random weights), one text of 128 tokens, forward pass")
    for name, seconds in t.items():
        print(f"  {name:32} {seconds * 1000:7.1f} ms   {seconds / t['plain']:5.2f} × plain")


LOAD = """
import re, sys, time, torch
which, folder, dtype = sys.argv[1:]
if which == "clearhead":
    from pathlib import Path
    from clearhead import hub
    import clearhead.models.gpt2
else:
    import transformers
    transformers.utils.logging.disable_progress_bar()
    from transformers import GPT2LMHeadModel
def peak():  # of this process's own memory; getrusage would count its parent's
    return int(re.search(r"VmHWM:\\s+(\\d+)", open("/proc/self/status").read())[1]) * 1024
before = peak()
start = time.perf_counter()
if which == "clearhead":
    model = hub.load_model(Path(folder), dtype=dtype)
else:
    model = GPT2LMHeadModel.from_pretrained(folder, dtype=dtype)
loaded = time.perf_counter() - start
with torch.no_grad():
    model(torch.arange(8)[None])
first = time.perf_counter() - start
grown = peak() - before
size = sum(p.numel() * p.element_size() for p in model.parameters())
print(loaded, first, grown / size)
"""


def loading() -> None:
    from clearhead import hub
    from clearhead.models.gpt2 import FAMILY, GPT2Config

    print("Loading GPT-2 124M from disk (file in the page cache); peak memory beyond the imports, in model sizes")
    with tempfile.TemporaryDirectory() as folder:
        hub.save_model(FAMILY.make(GPT2Config()), Path(folder) / "gpt2")
        for dtype in ("float32", "bfloat16"):
            for which in ("clearhead", "transformers"):
                runs = [tuple(map(float, python(LOAD, which, f"{folder}/gpt2", dtype).split())) for _ in range(3)]
                loaded, first, peak = (statistics.median(r) for r in zip(*runs, strict=True))
                print(
                    f"  {which:13} {dtype:9} load {loaded * 1000:6.0f} ms, with a first forward pass "
                    f"{first * 1000:6.0f} ms, peak {peak:4.2f} × the model"
                )


if __name__ == "__main__":
    torch.set_num_threads(2)
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads\n")
    start_up()
    glass_walls()
    loading()
