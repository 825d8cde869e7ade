"""Gradient × input for every generated token: all from one recorded pass, beside one forward and backward per prefix.

GPT-2 124M, random weights, 32 tokens read and 32 written. Two ways to go prefix by prefix are measured: as it is
usually written (scores for every position), and with scores for the last position only, which is the least it can do.

On a machine that others use too, the processor's seconds are the steadier ones.

    python benchmarks/saliency.py [--threads N] [--repeats N]
"""

import argparse
import statistics
import time
from collections.abc import Callable

import torch
from torch import Tensor

from clearhead.explain.attribution import Attributions, Explained, gradient
from clearhead.models.gpt2 import FAMILY
from clearhead.models.stack_model import TokenModel
from clearhead.nn.tracing import trace
from clearhead.units import TokenUnit

READ, WRITTEN = 32, 32


def prefix_by_prefix(model: TokenModel, ids: Tensor, keep: int) -> tuple[list[Tensor], list[float]]:
    """Shares and probabilities; keep: 0 scores every position, 1 the last only."""
    rows, chances = [], []
    for end in range(READ, READ + WRITTEN):
        entered: list[Tensor] = []

        def enter(x: Tensor, entered: list[Tensor] = entered) -> Tensor:
            entered.append(x.detach().requires_grad_())
            return entered[0]

        with trace(model, replace={"embed.tokens": enter}):
            logits = model(ids[:, :end], logits_to_keep=keep).logits[0, -1]
        word = int(ids[0, end])
        (slope,) = torch.autograd.grad(logits[word], entered)
        size = (slope * entered[0].detach())[0].norm(dim=-1)
        rows.append(size / size.sum())
        chances.append(float(logits.detach().softmax(-1)[word]))
    return rows, chances


def all_at_once(model: TokenModel, ids: Tensor) -> Attributions:
    row = ids[0].tolist()
    new = range(READ, READ + WRITTEN)
    units = [TokenUnit(str(n), n, None) for n in row]
    explained = Explained(
        model, {"input_ids": ids}, units, 0, list(new), [n - 1 for n in new], row[READ:], None,
        lambda ids: [str(n) for n in ids], [], "softmax",
    )  # fmt: skip
    return gradient(explained, times_input=True)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    options.add_argument("--threads", type=int, default=torch.get_num_threads())
    options.add_argument("--repeats", type=int, default=5)
    asked = options.parse_args()
    torch.set_num_threads(asked.threads)
    torch.manual_seed(0)
    model = FAMILY.make(FAMILY.config())
    assert isinstance(model, TokenModel)
    ids = torch.randint(0, 50257, (1, READ + WRITTEN))

    rows, chances = prefix_by_prefix(model, ids, 0)
    found = all_at_once(model, ids)
    worst = 0.0
    for n, row in enumerate(rows):
        ours = torch.from_numpy(found.strength[n, : len(row)])
        worst = max(worst, float(((ours / ours.sum() - row).abs() / row).max()))
    off = max(abs(a - b) / b for a, b in zip(found.probabilities.tolist(), chances, strict=True))
    print(f"largest relative difference: shares {worst:.1e}, probabilities {off:.1e}")

    ways: dict[str, Callable[[], object]] = {
        "all at once": lambda: all_at_once(model, ids),
        "per prefix": lambda: prefix_by_prefix(model, ids, 0),
        "per prefix, last scores": lambda: prefix_by_prefix(model, ids, 1),
    }
    taken: dict[str, list[tuple[float, float]]] = {name: [] for name in ways}
    for _ in range(asked.repeats):  # in turns, so that a busy moment does not fall on one of them alone
        for name, way in ways.items():
            begin = time.perf_counter(), time.process_time()
            way()
            taken[name].append((time.perf_counter() - begin[0], time.process_time() - begin[1]))
    print(f"{asked.threads} threads, {asked.repeats} repeats: median seconds (range); times as long as all at once")
    for kind, name_of in enumerate(("on the clock", "of the processor")):
        print(name_of)
        ours = [both[kind] for both in taken["all at once"]]
        for name, measured in taken.items():
            seconds = [both[kind] for both in measured]
            ratios = [theirs / own for theirs, own in zip(seconds, ours, strict=True)]
            print(
                f"  {name:24s} {statistics.median(seconds):6.2f} ({min(seconds):.2f} to {max(seconds):.2f}) "
                f"{statistics.median(ratios):5.2f} × ({min(ratios):.2f} to {max(ratios):.2f})"
            )


if __name__ == "__main__":
    main()
