"""What rounding the weights costs: perplexity on held-out text, and how long greedy texts stay the same.

    python benchmarks/precision_quality.py MODEL TEXT_FILE

MODEL is a trained model that continues text (a folder or a hub id); TEXT_FILE holds plain text it has not seen. Each
precision is compared with float32: perplexity over windows of the file, and for 40 prompts from it the share of
64 greedy tokens before the first that differs.
"""

from __future__ import annotations

import math
import sys
from pathlib import Path

import torch
import torch.nn.functional as F

import clearhead as ch

WINDOW, MOST, PROMPTS, NEW = 256, 40_000, 40, 64
PRECISIONS = {
    "float32": {"dtype": "float32"},
    "bfloat16": {"dtype": "bfloat16"},
    "int8": {"quantize": "int8"},
    "int4": {"quantize": "int4"},
}


def perplexity(model: torch.nn.Module, windows: torch.Tensor) -> float:
    total = 0.0
    with torch.no_grad():
        for batch in windows.split(8):
            logits = model(batch).logits[:, :-1].float()
            total += float(F.cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten(), reduction="sum"))
    return math.exp(total / (windows.shape[0] * (windows.shape[1] - 1)))


def main(name: str, file: str) -> None:
    tokenizer = ch.load(name).tokenizer
    ids = tokenizer.encode(Path(file).read_text(encoding="utf-8"), add_special_tokens=False)[:MOST]
    windows = torch.tensor(ids[: len(ids) // WINDOW * WINDOW]).view(-1, WINDOW)
    prompts = windows[:: max(1, len(windows) // PROMPTS)][:PROMPTS, :32]
    print(f"{name}: {windows.numel():,} held-out tokens in windows of {WINDOW}; {len(prompts)} prompts of 32 tokens")
    print(f"{'':10} {'perplexity':>11} {'change':>9} {'same greedy tokens':>20} {'first token':>12}")
    base, written = 0.0, torch.empty(0)
    for precision, options in PRECISIONS.items():
        model = ch.load(name, **options).model
        found = perplexity(model, windows)
        texts = torch.cat([model.generate(p[None], max_new_tokens=NEW, eos_token_id=[]) for p in prompts])[:, 32:]
        if precision == "float32":
            base, written = found, texts
        same = (texts == written).long().cumprod(1).float()
        print(
            f"{precision:10} {found:11.3f} {found / base - 1:+9.2%} {same.mean():20.1%} {same[:, 0].mean():12.1%}",
            flush=True,
        )


if __name__ == "__main__":
    main(*sys.argv[1:3])
