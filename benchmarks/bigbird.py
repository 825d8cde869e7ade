"""What block-sparse attention costs as texts grow: time and peak memory of a layer of BigBird-base, beside dense.

One attention layer (width 768, 12 heads, blocks of 64, 3 random blocks), one text, each side in a process of its own.
Peak memory is what the call adds to the process: for the fused and the sparse side it grows with the length, for the
explicit side with its square. `transformers`' block-sparse layer keeps a whole square of weights, so it is here too.

    python benchmarks/bigbird.py [--backward] [--longest 16384]
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch

SIDES = ("block-sparse", "dense, fused", "dense, explicit", "transformers' blocks")
SQUARES = ("dense, explicit", "transformers' blocks")  # stop early: 12 squares of 16k positions are 13 GB
MOST_SQUARE = 4096


def layer(side: str, length: int, device: str, training: bool) -> Callable[[torch.Tensor], torch.Tensor]:
    """x (1, length, 768) -> the layer's answer, of the same shape."""
    if side == "transformers' blocks":
        from transformers import BigBirdConfig
        from transformers.models.big_bird.modeling_big_bird import BigBirdBlockSparseAttention, BigBirdModel

        theirs = BigBirdBlockSparseAttention(BigBirdConfig(max_position_embeddings=length), seed=0).to(device)
        theirs.train(training)
        shown = torch.ones(1, length, device=device)
        blocks, band, rows, columns = BigBirdModel.create_masks_for_block_sparse_attn(shown, 64)
        return lambda x: theirs(x, band, rows, columns, blocks, blocks)[0]

    from clearhead.nn import Attention, BoundMask, trace
    from clearhead.nn.block_sparse import BlockSparseAttention

    ours: Attention
    if side == "block-sparse":
        ours = BlockSparseAttention(768, 12, block_size=64, random_blocks=3, seed=0, max_positions=length)
    else:
        ours = Attention(768, 12)
    ours.to(device).train(training)
    if side != "dense, explicit":
        return lambda x: ours(x, BoundMask())

    def watched(x: torch.Tensor) -> torch.Tensor:
        with trace(ours, "weights", detach=True):
            return ours(x, BoundMask())

    return watched


def peak(device: str) -> int:
    if device == "cuda":
        return torch.cuda.max_memory_allocated()
    return int(re.search(r"VmHWM:\s+(\d+)", Path("/proc/self/status").read_text())[1]) * 1024  # type: ignore[index]


def measure(side: str, length: int, device: str, backward: bool) -> dict[str, float]:
    """Seconds (the median of several calls) and bytes that the call adds to the process."""
    torch.manual_seed(0)
    torch.set_num_threads(2)
    run = layer(side, length, device, training=backward)

    def once(size: int) -> float:
        x = torch.randn(1, size, 768, device=device, requires_grad=backward)
        start = time.perf_counter()
        with torch.set_grad_enabled(backward):
            out = run(x)
            if backward:
                out.sum().backward()
        if device == "cuda":
            torch.cuda.synchronize()
        return time.perf_counter() - start

    if side != "transformers' blocks":
        once(64)  # load what loads late, without touching much memory
    before = peak(device)
    seconds = [once(length)]
    added = peak(device) - before
    while len(seconds) < 5 and sum(seconds) < 10:
        seconds.append(once(length))
    return {"seconds": statistics.median(seconds), "bytes": added}


def table(device: str, backward: bool, longest: int) -> None:
    print(f"{'forward and backward' if backward else 'forward'} on {device}: time and peak memory, × of dense, fused\n")
    print(f"{'tokens':>7} " + "".join(f"{side:^28}" for side in SIDES))
    length = 1024 // 2
    while length <= longest:
        found: dict[str, dict[str, float]] = {}
        for side in SIDES:
            if (side in SQUARES and length > MOST_SQUARE) or (side == "transformers' blocks" and length < 1024):
                continue
            job = json.dumps([side, length, device, backward])
            done = subprocess.run([sys.executable, __file__, "--job", job], capture_output=True, text=True)
            if done.returncode == 0:
                found[side] = json.loads(done.stdout)
        cells = []
        for side in SIDES:
            if side not in found:
                cells.append(f"{'–':^28}")
                continue
            t, b = found[side]["seconds"], found[side]["bytes"]
            dense = found["dense, fused"]
            mine = f"{t * 1000:6.0f} ms {t / dense['seconds']:4.2f}× {b / 2**20:5.0f} MB {b / dense['bytes']:4.1f}×"
            cells.append(f"{mine:^28}")
        print(f"{length:>7} " + "".join(cells), flush=True)
        length *= 2
    print()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])  # type: ignore[union-attr]
    parser.add_argument("--backward", action="store_true", help="training: forward and backward, random blocks drawn")
    parser.add_argument("--longest", type=int, default=16384)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--job", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.job:
        print(json.dumps(measure(*json.loads(options.job))))
    else:
        print(f"torch {torch.__version__}; up to (5 + 2 · 3) · 64 = 704 tokens block-sparse attention is dense")
        table(options.device, options.backward, options.longest)
