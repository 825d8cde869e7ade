"""What a sliding window costs in blocks and as a dense mask: time and peak memory from 512 to 16k tokens.

Each measurement runs in a process of its own, because a process does not give its peak back. Machines are noisy: read
the ratios. `--train` adds the backward pass, `--device cuda` measures there.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import subprocess
import sys
import time

LENGTHS = (512, 1024, 2048, 4096, 8192, 16384)


def measure(side: str, length: int, args: argparse.Namespace) -> dict[str, float]:
    """Median seconds of a call, and the MiB that it needed beyond its inputs."""
    import torch

    from clearhead.nn.attention import attend
    from clearhead.nn.masks import Mask

    torch.manual_seed(0)
    on_gpu = args.device == "cuda"
    shape = (1, args.heads, length, 64)
    query, key, value = (torch.randn(shape, device=args.device, requires_grad=args.train) for _ in range(3))
    module = torch.nn.Module()

    def peak() -> float:
        if on_gpu:
            return torch.cuda.max_memory_allocated() / 2**20
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1024 if sys.platform != "darwin" else 2**20)

    def call(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, rows: int) -> None:
        mask = Mask(causal=True, window=args.window).bind(
            rows, rows, args.device, batch=1 if side == "blocks" else None
        )
        with torch.set_grad_enabled(args.train):
            heads = attend(module, query, key, value, mask, scale=0.125)
        if args.train:
            heads.sum().backward()
        if on_gpu:
            torch.cuda.synchronize()

    few = min(length, 2 * args.window + 1)
    call(query[:, :, :few], key[:, :, :few], value[:, :, :few], few)  # what the first call loads is not counted
    before = peak()
    times = []
    for _ in range(args.rounds):
        start = time.perf_counter()
        call(query, key, value, length)
        times.append(time.perf_counter() - start)
    return {"seconds": statistics.median(times), "mib": peak() - before}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--window", type=int, default=256)
    parser.add_argument("--heads", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--longest", type=int, default=LENGTHS[-1])
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--train", action="store_true")
    parser.add_argument("--one", nargs=2, metavar=("SIDE", "LENGTH"), help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.one:
        print(json.dumps(measure(args.one[0], int(args.one[1]), args)))
        return
    kind = "forward and backward" if args.train else "forward"
    print(f"Causal window of {args.window}, {args.heads} heads of 64, fp32, {kind}, on {args.device}")
    print(f"{'tokens':>7} {'dense':>10} {'blocks':>10} {'faster':>8} {'dense':>11} {'blocks':>11} {'less':>8}")
    for length in (n for n in LENGTHS if n <= args.longest):
        found = {}
        for side in ("dense", "blocks"):
            command = [sys.executable, __file__, *sys.argv[1:], "--one", side, str(length)]
            found[side] = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
        dense, blocks = found["dense"], found["blocks"]
        memory = f"{dense['mib'] / blocks['mib']:7.1f}x" if blocks["mib"] >= 1 else "       –"
        print(
            f"{length:7} {dense['seconds'] * 1000:7.1f} ms {blocks['seconds'] * 1000:7.1f} ms "
            f"{dense['seconds'] / blocks['seconds']:7.1f}x {dense['mib']:7.0f} MiB {blocks['mib']:7.0f} MiB {memory}",
            flush=True,
        )


if __name__ == "__main__":
    main()
