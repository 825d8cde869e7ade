"""Tokens per second on a CUDA device: GPT-2 124M and XL in bf16, beside `transformers` in the same run.

Weights are random: speed does not depend on their values. The limit is reading every weight once per step, at the
copy bandwidth measured in the same run.

    python benchmarks/decode_gpu.py [--quick]
"""

from __future__ import annotations

import argparse
import gc
import statistics
import time
from collections.abc import Callable

import torch

from clearhead.models import family

PROMPT, NEW = 64, 256
# One text goes through kernels of its own, which there is nothing to compile around.
CASES = {
    ("gpt2", 1): ("recorded, greedy", "recorded, top-k 40", "without graphs"),
    ("gpt2", 64): ("recorded, greedy", "recorded, top-k 40", "compiled, greedy"),
    ("gpt2-xl", 1): ("recorded, greedy", "recorded, top-k 40"),
}
OPTIONS = {
    "recorded, greedy": {},
    "recorded, top-k 40": {"top_k": 40, "seed": 1},
    "compiled, greedy": {"compile": True},
    "without graphs": {"cuda_graphs": False, "new": 32},
}


def bandwidth() -> float:
    """Bytes per second that a copy moves, reading and writing."""
    a = torch.empty(2**30, dtype=torch.uint8, device="cuda")
    b = torch.empty_like(a)
    return 2 * a.numel() / seconds(lambda: b.copy_(a), rounds=20)


def seconds(run: Callable[[], object], rounds: int = 3) -> float:
    run()
    times = []
    for _ in range(rounds):
        torch.cuda.synchronize()
        start = time.perf_counter()
        run()
        torch.cuda.synchronize()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def ours(preset: str) -> torch.nn.Module:
    gpt2 = family("gpt2")
    return gpt2.make(gpt2.config(**gpt2.presets[preset]), device="cuda").to(torch.bfloat16)


def theirs(preset: str) -> torch.nn.Module | None:
    try:
        import transformers
    except ImportError:
        return None
    sizes = {"gpt2": (768, 12, 12), "gpt2-xl": (1600, 48, 25)}
    width, layers, heads = sizes[preset]
    config = transformers.GPT2Config(n_embd=width, n_layer=layers, n_head=heads)
    with torch.device("cuda"):
        return transformers.GPT2LMHeadModel(config).to(torch.bfloat16).eval()


def speed(model: torch.nn.Module, batch: int, new: int = NEW, rounds: int = 3, **options: object) -> float:
    """New tokens per second of one call, prompt included."""
    ids = torch.randint(0, 50257, (batch, PROMPT), device="cuda")
    call = {"max_new_tokens": new, "eos_token_id": [], **options}
    return batch * new / seconds(lambda: model.generate(ids, **call), rounds)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="without the peers")
    args = parser.parse_args()
    name, rate = torch.cuda.get_device_name(), bandwidth()
    print(f"{name}, torch {torch.__version__}, copy bandwidth {rate / 1e12:.2f} TB/s; {PROMPT} + {NEW} tokens, bf16")
    print(f"{'':38} {'tokens/s':>10} {'step':>10} {'of limit':>10} {'× transformers':>15}")
    for preset, batch, bar in (("gpt2", 1, 1500), ("gpt2", 64, 60_000), ("gpt2-xl", 1, 700)):
        peer = None
        if not args.quick and (model := theirs(preset)) is not None:
            mask = torch.ones(batch, PROMPT, dtype=torch.long, device="cuda")
            peer = speed(model, batch, 32, attention_mask=mask, do_sample=False, pad_token_id=0, eos_token_id=-1)
            print(f"{preset + ', batch ' + str(batch):18} {'transformers, eager':20} {peer:9,.0f}", flush=True)
            del model
            gc.collect()
        model = ours(preset)
        limit = rate / sum(p.numel() * p.element_size() for p in model.parameters()) * batch
        for label in CASES[preset, batch]:
            options = OPTIONS[label]
            start = time.perf_counter()
            speed(model, batch, rounds=1, **options)
            first = time.perf_counter() - start
            now = speed(model, batch, **options)
            ratio = f"{now / peer:14.1f}×" if peer else ""
            print(
                f"{preset + ', batch ' + str(batch):18} {label:20} {now:9,.0f} {1e3 * batch / now:7.2f} ms "
                f"{now / limit:10.0%} {ratio}   (first two calls {first:.0f} s)",
                flush=True,
            )
        print(f"{'':18} bar {bar:,}; limit {limit:,.0f}", flush=True)
        del model
        gc.collect()


if __name__ == "__main__":
    main()
