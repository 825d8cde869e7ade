"""How fast GPT-2 trains: tokens per second beside nanoGPT in the same run, and the time to a given loss by optimiser.

    python benchmarks/train_gpu.py speed --nanogpt path/to/nanoGPT       # its model.py is used, as it is
    python benchmarks/train_gpu.py optimizers --data text.txt            # Muon and AdamW on the same text

nanoGPT is measured as its train.py runs it: bf16 autocast, torch.compile, fused AdamW, clipping; without biases (its
default) and with them (as GPT-2 has, and as Clearhead always trains it).
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import sys
import tempfile
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from statistics import median

import torch

from clearhead.models.gpt2 import FAMILY, GPT2Config
from clearhead.train import train
from clearhead.train.data.types import Batch
from clearhead.train.engine.checkpoints import Checkpoints
from clearhead.train.engine.flops import peak_flops_per_second, training_flops
from clearhead.train.engine.loop import Loop, LoopOptions
from clearhead.train.engine.memory_saving import save_memory
from clearhead.train.engine.optim import optimizer
from clearhead.train.engine.world import World
from clearhead.train.objectives.causal import CausalLM
from clearhead.zoo.random_gpt2 import make as random_gpt2

ADAMW = {"lr": 6e-4, "weight_decay": 0.1, "betas": (0.9, 0.95)}


class Same:
    """The same batch at every step: the model's speed is measured, not the disk's."""

    def __init__(self, ids: torch.Tensor) -> None:
        count = ids.shape[0] * (ids.shape[1] - 1)
        self.batch = Batch({"input_ids": ids, "labels": ids}, {"loss": count}, ids.numel())

    def at(self, step: int) -> list[Batch]:
        return [self.batch]


def ours(ids: torch.Tensor, config: GPT2Config, name: str, device: torch.device) -> Callable[[], None]:
    """A step of the loop that `clearhead train` runs."""
    model = FAMILY.make(config, "causal-lm").to(device)
    objective = CausalLM(random_gpt2()[1], ids.shape[1], cross_documents=True)
    world = World(device)
    module = objective.training_module(model)
    save_memory(model, device)
    moving = optimizer(module, name, **ADAMW)
    plan = LoopOptions(steps=10**9, dtype=torch.bfloat16)
    nowhere = Checkpoints(Path(tempfile.mkdtemp()), 1)
    loop = Loop(
        world.wrap(module, compile=True, static_shapes=True, single_call=True), objective, Same(ids), moving, plan,
        nowhere, world,
        prepare=lambda step: 6e-4,
    )  # fmt: skip
    return lambda: loop._step(0)


def nanogpt(ids: torch.Tensor, folder: Path, sizes: dict[str, int], bias: bool, device: str) -> Callable[[], None]:
    spec = importlib.util.spec_from_file_location("nanogpt_model", folder / "model.py")
    if spec is None or spec.loader is None or not (folder / "model.py").is_file():
        sys.exit(f"{folder} holds no model.py: give a checkout of nanoGPT.")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    model = module.GPT(module.GPTConfig(vocab_size=50304, dropout=0.0, bias=bias, **sizes)).to(device)
    moving = model.configure_optimizers(0.1, 6e-4, (0.9, 0.95), device)
    compiled = torch.compile(model)
    x, y = ids[:, :-1].contiguous(), ids[:, 1:].contiguous()
    x, y = torch.nn.functional.pad(x, (0, 1)), torch.nn.functional.pad(y, (0, 1), value=-1)

    def step() -> None:
        with torch.autocast(device, torch.bfloat16):
            _, loss = compiled(x, y)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        moving.step()
        moving.zero_grad(set_to_none=True)

    return step


def seconds_of(step: Callable[[], None], device: torch.device, warm: int, rounds: int, each: int) -> float:
    """The median over rounds of a step's time; the device is waited for at the end of a round only."""

    def wait() -> None:
        if device.type == "cuda":
            torch.cuda.synchronize()

    for _ in range(warm):
        step()
    wait()
    times = []
    for _ in range(rounds):
        began = time.perf_counter()
        for _ in range(each):
            step()
        wait()
        times.append((time.perf_counter() - began) / each)
    return sorted(times)[len(times) // 2]


def speed(asked: argparse.Namespace) -> None:
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True
    sizes = {"n_layer": asked.layers, "n_head": asked.heads, "n_embd": asked.width, "block_size": asked.length}
    config = GPT2Config(
        hidden_size=asked.width,
        num_hidden_layers=asked.layers,
        num_attention_heads=asked.heads,
        max_position_embeddings=asked.length,
        attn_pdrop=0.0,
        resid_pdrop=0.0,
        embd_pdrop=0.0,
    )
    ids = torch.randint(0, 50257, (asked.batch, asked.length), device=device)
    peak = peak_flops_per_second(device, torch.bfloat16, 1.0)
    flops = training_flops(FAMILY.make(config, "causal-lm", device="meta"), asked.length)
    print(f"{device}, bf16, batch {asked.batch} × {asked.length}; a plain matmul here: {peak / 1e12:.0f} TFLOP/s")
    sides: dict[str, Callable[[], Callable[[], None]]] = {}
    if asked.nanogpt is not None:
        sides["nanoGPT"] = lambda: nanogpt(ids, asked.nanogpt, sizes, False, device.type)
        sides["nanoGPT, with biases"] = lambda: nanogpt(ids, asked.nanogpt, sizes, True, device.type)
    for name in ("adamw", "muon"):
        sides[f"clearhead, {name}"] = lambda name=name: ours(ids, config, name, device)
    first = None
    for side, build in sides.items():
        torch._dynamo.reset()
        took = seconds_of(build(), device, 6, asked.rounds, asked.each)
        rate = ids.numel() / took
        first = first or rate
        share = rate * flops / peak
        print(f"{side:24s} {took * 1e3:8.1f} ms  {rate:10,.0f} tokens/s  {share:6.1%} of peak  {rate / first:.3f} ×")
        if device.type == "cuda":
            torch.cuda.empty_cache()


def optimizers(asked: argparse.Namespace) -> None:
    """The time to the loss that AdamW ends with, at the best of its rates: the same model, data and steps.

    A step's time is the median over the run, so that compiling is nobody's loss; evaluations are not counted.
    """
    sides = [("adamw", rate) for rate in asked.adamw_lr] + [("muon", asked.muon_lr)]
    logs: dict[tuple[str, float], list[tuple[int, float, float]]] = {}  # (step, seconds until then, held-out loss)
    with tempfile.TemporaryDirectory() as folder:
        for name, rate in sides:
            out = Path(folder) / f"{name}-{rate}"
            settings = {
                "objective": {"name": "causal-lm", "cross_documents": True},
                "out": str(out),
                "data": {"train": str(asked.data), "validation_fraction": 0.02, "cache": str(Path(folder) / "data")},
                "tokenizer": {"kind": "bpe", "vocab_size": 8192},
                "model": {"family": "gpt2", "config": {
                    "hidden_size": asked.width, "num_hidden_layers": asked.layers, "num_attention_heads": asked.heads,
                    "max_position_embeddings": asked.length,
                }},
                "batch": {"size": asked.batch, "length": asked.length},
                "optimizer": {"name": name, "lr": rate, "weight_decay": 0.1, "betas": [0.9, 0.95]},
                "schedule": {"name": "cosine", "warmup": 0.05},
                "steps": asked.steps,
                "evaluation": {"every": max(asked.steps // 40, 1)},
                "checkpoint": {"every": asked.steps},
                "compile": asked.compile,
            }  # fmt: skip
            train(settings)
            events = [json.loads(line) for line in (out / "log.jsonl").read_text().splitlines()]
            told = [(e["step"], e["seconds"]) for e in events if e["event"] == "step"]
            pace = median((b[1] - a[1]) / (b[0] - a[0]) for a, b in pairwise(told) if b[0] > a[0])
            logs[name, rate] = [
                (e["step"], e["step"] * pace, e["metrics"]["loss"]) for e in events if e["event"] == "evaluation"
            ]
            step, seconds, loss = logs[name, rate][-1]
            print(f"{name:6s} lr {rate:g}: {step} steps in {seconds:.1f} s, held-out loss {loss:.4f}", flush=True)
    best = min((side for side in logs if side[0] == "adamw"), key=lambda side: logs[side][-1][2])
    goal, whole = logs[best][-1][2], logs[best][-1][1]
    reached = next(((step, seconds) for step, seconds, loss in logs["muon", asked.muon_lr] if loss <= goal), None)
    print(f"goal: AdamW's last held-out loss at its best rate ({best[1]:g}), {goal:.4f}, after {whole:.1f} s")
    if reached is None:
        print("Muon does not reach it")
    else:
        print(f"Muon is there at step {reached[0]}, {reached[1]:.1f} s: {reached[1] / whole:.2f} × AdamW's time")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    kinds = parser.add_subparsers(required=True)
    quick = kinds.add_parser("speed")
    quick.set_defaults(run=speed, layers=12, heads=12, width=768, length=1024, batch=64)
    quick.add_argument("--nanogpt", type=Path)
    quick.add_argument("--rounds", type=int, default=3)
    quick.add_argument("--each", type=int, default=8)
    moved = kinds.add_parser("optimizers")
    moved.set_defaults(run=optimizers, layers=6, heads=6, width=384, length=512, batch=64)
    moved.add_argument("--data", type=Path, required=True)
    moved.add_argument("--steps", type=int, default=1500)
    moved.add_argument("--adamw-lr", type=float, nargs="+", default=[1e-3, 2e-3, 4e-3])
    moved.add_argument("--muon-lr", type=float, default=2e-3)
    moved.add_argument("--compile", action="store_true")
    for each in (quick, moved):
        for name in ("layers", "heads", "width", "length", "batch"):
            each.add_argument(f"--{name}", type=int)
    asked = parser.parse_args()
    asked.run(asked)


if __name__ == "__main__":
    main()
