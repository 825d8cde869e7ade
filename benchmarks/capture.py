"""What looking inside costs: all attention weights and hidden states of GPT-2 124M, beside a plain forward pass.

    python benchmarks/capture.py [--rounds N] [--threads N] [--tokens N] [--peer-python PATH]

Ours is held against our own plain forward pass (the bar: 1.15 times), `transformers` (output_attentions and
output_hidden_states, which need its eager attention) against its own plain one with fused attention, TransformerLens
(run_with_cache, for the same tensors and for everything) against its own. Weights are drawn at random and the same for
all; so are the results, which is checked. Every library runs in a process of its own; the processes take turns.
TransformerLens may live in another environment, whose python --peer-python names.

Memory counts the tensors that a call makes: how much is alive at once, and how much is kept when it returns.
On a machine that others use too, the processor's seconds are the steadier ones, and the least of many rounds.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
import weakref
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

BAR = 1.15
Job = Callable[[], tuple[Tensor, list[Tensor], list[Tensor]]]  # -> logits, attention weights, hidden states


# ---- the libraries, each in its own process; only the first imports clearhead


def clearhead_jobs(folder: str, ids: Tensor) -> dict[str, Job]:
    from clearhead import hub
    from clearhead.nn.tracing import trace

    model = hub.load_model(Path(folder)).eval()

    def watched(*patterns: str) -> tuple[Tensor, list[Tensor], list[Tensor]]:
        with trace(model, *patterns) as seen:
            logits = model(ids).logits
        weights = [tensor for name, tensor in seen.items() if name.endswith("weights")]
        return logits, weights, [tensor for name, tensor in seen.items() if name.endswith("put")]

    every = "layers.*.attention.weights"
    return {
        "plain": lambda: (model(ids).logits, [], []),
        "all": partial(watched, every, "embed.output", "layers.*.output"),
        "weights": partial(watched, every),
        "one layer": partial(watched, "layers.5.attention.weights"),
        "states": partial(watched, "embed.output", "layers.*.output"),
    }


def transformers_jobs(folder: str, ids: Tensor) -> dict[str, Job]:
    import transformers

    fused, eager = (
        transformers.AutoModelForCausalLM.from_pretrained(folder, attn_implementation=way).eval()
        for way in ("sdpa", "eager")
    )

    def watched() -> tuple[Tensor, list[Tensor], list[Tensor]]:
        out = eager(ids, use_cache=False, output_attentions=True, output_hidden_states=True)
        return out.logits, list(out.attentions), list(out.hidden_states)

    return {"plain": lambda: (fused(ids, use_cache=False).logits, [], []), "all": watched}


def transformer_lens_jobs(folder: str, ids: Tensor) -> dict[str, Job]:
    import transformers
    from transformer_lens.model_bridge import TransformerBridge

    inner = transformers.AutoModelForCausalLM.from_pretrained(folder, attn_implementation="eager").eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = TransformerBridge.boot_transformers("gpt2", hf_model=inner, tokenizer=tokenizer).eval()

    def wanted(name: str) -> bool:
        return name.endswith(("attn.hook_pattern", "hook_resid_post")) or name == "blocks.0.hook_resid_pre"

    def watched(**options: Any) -> tuple[Tensor, list[Tensor], list[Tensor]]:
        logits, seen = model.run_with_cache(ids, **options)
        kept = dict(seen.items())
        states = [kept["blocks.0.hook_resid_pre"], *(t for name, t in kept.items() if name.endswith("hook_resid_post"))]
        rest = [tensor for name, tensor in kept.items() if not wanted(name)]
        return logits, [t for name, t in kept.items() if name.endswith("hook_pattern")], [*states, *rest]

    return {
        "plain": lambda: (model(ids), [], []),
        "all": partial(watched, names_filter=wanted),
        "everything": watched,
    }


SIDES = {"clearhead": clearhead_jobs, "transformers": transformers_jobs, "transformer_lens": transformer_lens_jobs}


class Alive(TorchDispatchMode):
    """Counts the bytes of tensors that are made while it is on, until they are dropped."""

    def __init__(self) -> None:
        super().__init__()
        self.now = self.most = 0
        self.known: set[int] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        before = {t.untyped_storage().data_ptr() for t in tree_leaves((args, kwargs)) if isinstance(t, Tensor)}
        out = func(*args, **(kwargs or {}))
        for tensor in tree_leaves(out):
            if isinstance(tensor, Tensor) and (at := tensor.untyped_storage().data_ptr()) not in before | self.known:
                size = tensor.untyped_storage().nbytes()
                self.known.add(at)
                self.now += size
                self.most = max(self.most, self.now)
                weakref.finalize(tensor.untyped_storage(), self._drop, at, size)
        return out

    def _drop(self, at: int, size: int) -> None:
        self.known.discard(at)
        self.now -= size


def serve(side: str, folder: str, threads: int, tokens: int) -> None:
    """Does the jobs that are asked for, a line of JSON each, until nobody asks any more."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever a library prints does not get between the answers
    torch.set_num_threads(threads)
    ids = torch.randint(0, 50257, (1, tokens), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        jobs = SIDES[side](folder, ids)
        print(json.dumps(list(jobs)), file=answers, flush=True)
        for line in sys.stdin:
            job, what = json.loads(line)
            if what == "memory":
                with Alive() as alive:
                    held = jobs[job]()
                    result: Any = [alive.most, alive.now]
                del held
            elif what == "numbers":
                logits, weights, states = jobs[job]()
                result = [[float(t.double().square().sum()) for t in part] for part in ([logits], weights, states[:12])]
            else:
                begin = time.perf_counter(), time.process_time()
                jobs[job]()
                result = [time.perf_counter() - begin[0], time.process_time() - begin[1]]
            print(json.dumps(result), file=answers, flush=True)


# ---- the one that asks


class Peer:
    def __init__(self, side: str, python: str, folder: str, threads: int, tokens: int) -> None:
        given = ["--serve", side, folder, "--threads", str(threads), "--tokens", str(tokens)]
        quiet = {**os.environ, "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": str(threads)}
        self.side = side
        self.process = subprocess.Popen(
            [python, __file__, *given], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
            text=True, env=quiet,
        )  # fmt: skip
        self.jobs: list[str] = self._answer()

    def _answer(self) -> Any:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"{self.side} could not go on; run this file with --serve {self.side} to see why.")
        return json.loads(line)

    def ask(self, job: str, what: str) -> Any:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps([job, what]) + "\n")
        self.process.stdin.flush()
        return self._answer()


def same(peers: list[Peer]) -> None:
    """All libraries computed the same: sums of squares of the scores, of each layer's weights and of its states."""
    first = peers[0].ask("all", "numbers")
    for peer in peers[1:]:
        for ours, theirs in zip(first, peer.ask("all", "numbers"), strict=True):
            assert len(ours) == len(theirs), (peer.side, len(ours), len(theirs))
            assert all(abs(a - b) <= 1e-4 * abs(a) for a, b in zip(ours, theirs, strict=True)), peer.side


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    options.add_argument("--rounds", type=int, default=15)
    options.add_argument("--threads", type=int, default=2)
    options.add_argument("--tokens", type=int, default=128)
    options.add_argument("--peer-python", help="a python that has transformer_lens; without it that side stays out")
    options.add_argument("--only", nargs="*", choices=SIDES, help="these libraries alone")
    options.add_argument("--serve", nargs=2, metavar=("SIDE", "FOLDER"), help=argparse.SUPPRESS)
    asked = options.parse_args()
    if asked.serve:
        side, folder = asked.serve
        serve(side, folder, asked.threads, asked.tokens)
    else:
        compare(asked)


def compare(asked: argparse.Namespace) -> None:
    from clearhead.cli.bench import random_gpt2

    pythons = {"clearhead": sys.executable, "transformers": sys.executable, "transformer_lens": asked.peer_python}
    with random_gpt2() as folder:
        chosen = [side for side in SIDES if pythons[side] and (not asked.only or side in asked.only)]
        peers = [Peer(side, pythons[side], str(folder), asked.threads, asked.tokens) for side in chosen]
        same(peers)
        todo = [(peer, job) for peer in peers for job in peer.jobs]
        taken: dict[tuple[str, str], list[tuple[float, float]]] = {(peer.side, job): [] for peer, job in todo}
        for n in range(asked.rounds + 2):
            for peer, job in todo if n % 2 else reversed(todo):
                seconds = peer.ask(job, "time")
                if n >= 2:  # the first rounds only warm up
                    taken[peer.side, job].append(tuple(seconds))
        memory = {(peer.side, job): peer.ask(job, "memory") for peer, job in todo}

    print(f"GPT-2 124M, {asked.tokens} tokens, float32, {asked.threads} thread(s), {asked.rounds} rounds in turns.")
    print(
        "ms on the clock: median (least); × of the library's own plain forward: medians, least; processor's ms alike\n"
    )
    for (side, job), times in taken.items():
        cells = []
        for kind in (0, 1):
            own, plain = ([t[kind] * 1000 for t in one] for one in (times, taken[side, "plain"]))
            middle = statistics.median(own) / statistics.median(plain)
            cells.append(
                f"{statistics.median(own):8.1f} ({min(own):7.1f})  {middle:5.2f} × {min(own) / min(plain):5.2f} ×"
            )
        most, kept = (size / 2**20 for size in memory[side, job])
        print(f"{side:16} {job:10} {'   '.join(cells)}   alive {most:7.1f} MiB, kept {kept:6.1f}")
    if ("clearhead", "all") in taken:
        rows = [taken["clearhead", job] for job in ("all", "plain")]
        for name, kind in (("clock", 0), ("processor", 1)):
            ratio = statistics.median(a[kind] for a in rows[0]) / statistics.median(b[kind] for b in rows[1])
            print(
                f"\n{name}: {ratio:.2f} × our plain forward, bar {BAR}: {'reached' if ratio <= BAR else 'MISSED'}",
                end="",
            )
    print()


if __name__ == "__main__":
    main()
