"""A step of training recurrent models on a GPU, beside the same network written with torch.nn's fused LSTM alone.

    python benchmarks/train_rnn_gpu.py [--precision bf16] [--rounds 5] [--steps 10]

Language model: an embedding, two LSTM layers, a matrix over the vocabulary. Translator: an LSTM in both directions
reads, another writes and attends (Luong, general, without input feeding: all steps in one call of the kernel); and the
same with additive attention and input feeding, where both sides take steps one by one. Equal sizes, the same batches,
AdamW (fused), nothing compiled. Sides take turns; medians of rounds of steps are compared.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from clearhead.models import family

Loss = Callable[[], Tensor]
Sides = dict[str, tuple[nn.Module, Loss]]


class PlainLM(nn.Module):
    def __init__(self, words: int, width: int, layers: int, dropout: float) -> None:
        super().__init__()
        self.embedding = nn.Embedding(words, width)
        self.rnn = nn.LSTM(width, width, layers, batch_first=True, dropout=dropout)
        self.output = nn.Linear(width, words)
        self.drop = nn.Dropout(dropout)

    def forward(self, ids: Tensor) -> Tensor:
        logits = self.output(self.drop(self.rnn(self.drop(self.embedding(ids)))[0]))
        return F.cross_entropy(logits[:, :-1].flatten(0, 1).float(), ids[:, 1:].flatten())


class PlainTranslator(nn.Module):
    """Texts of one length: nothing is packed on either side."""

    def __init__(self, words: int, width: int, dropout: float, additive: bool) -> None:
        super().__init__()
        self.additive = additive
        self.embedding = nn.Embedding(words, width)
        self.encoder = nn.LSTM(width, width // 2, batch_first=True, bidirectional=True)
        self.bridge = nn.ModuleList([nn.Linear(width, width), nn.Linear(width, width)])
        if additive:
            self.cell = nn.LSTMCell(3 * width, width)
            self.query, self.vector = nn.Linear(width, width, bias=False), nn.Linear(width, 1, bias=False)
        else:
            self.decoder = nn.LSTM(width, width, batch_first=True)
        self.key = nn.Linear(width, width, bias=additive)
        self.readout = nn.Linear(2 * width, width, bias=False)
        self.output = nn.Linear(width, words)
        self.drop = nn.Dropout(dropout)

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        memory, (h, c) = self.encoder(self.drop(self.embedding(source)))
        memory = self.drop(memory)
        h = self.bridge[0](h.transpose(0, 1).flatten(1)).tanh()
        c = self.bridge[1](c.transpose(0, 1).flatten(1))
        start = torch.ones_like(target[:, :1])
        x, keys = self.drop(self.embedding(torch.cat([start, target[:, :-1]], 1))), self.key(memory)
        if self.additive:
            out = self._in_steps(x, keys, memory, h, c)
        else:
            states, _ = self.decoder(x, (h[None], c[None]))
            context = (states @ keys.transpose(1, 2)).softmax(-1) @ memory
            out = self.drop(self.readout(torch.cat([context, states], -1)).tanh())
        return F.cross_entropy(self.output(out).flatten(0, 1).float(), target.flatten())

    def _in_steps(self, x: Tensor, keys: Tensor, memory: Tensor, h: Tensor, c: Tensor) -> Tensor:
        fed, out = torch.zeros_like(h), []
        for now in x.unbind(1):
            scores = self.vector((self.query(h)[:, None] + keys).tanh())[..., 0]
            context = (scores.softmax(-1)[:, None] @ memory)[:, 0]
            h, c = self.cell(torch.cat([now, context, fed], -1), (h, c))
            fed = self.drop(self.readout(torch.cat([context, h], -1)).tanh())
            out.append(fed)
        return torch.stack(out, 1)


def language_model(width: int, words: int, dropout: float, device: str, small: bool) -> Sides:
    fam = family("rnn")
    config = fam.config(vocab_size=words, embedding_size=width, hidden_size=width, num_hidden_layers=2, dropout=dropout)
    ours, plain = fam.make(config).train().to(device), PlainLM(words, width, 2, dropout).to(device)
    ids = torch.randint(0, words, (4, 16) if small else (64, 128), device=device)
    return {"torch.nn": (plain, lambda: plain(ids)), "clearhead": (ours, lambda: ours(ids, labels=ids).loss)}


def translator(width: int, words: int, dropout: float, additive: bool, device: str, small: bool) -> Sides:
    fam = family("rnn-seq2seq")
    attention = {"attention": "additive", "input_feeding": True} if additive else {"attention": "general"}
    config = fam.config(
        vocab_size=words,
        embedding_size=width,
        hidden_size=width,
        dropout=dropout,
        tie_source_embeddings=True,
        **attention,
    )
    ours, plain = fam.make(config).train().to(device), PlainTranslator(words, width, dropout, additive).to(device)
    source, target = (torch.randint(3, words, (4, 7) if small else (256, 24), device=device) for _ in range(2))
    return {
        "torch.nn": (plain, lambda: plain(source, target)),
        "clearhead": (ours, lambda: ours(source, labels=target).loss),
    }


def measure(sides: Sides, rounds: int, steps: int, autocast: bool, device: str) -> dict[str, float]:
    """Milliseconds of a step."""
    optimizers = {n: torch.optim.AdamW(m.parameters(), 1e-3, fused=device == "cuda") for n, (m, _) in sides.items()}
    times: dict[str, list[float]] = {name: [] for name in sides}
    for n in range(rounds + 1):
        for name, (module, loss) in sides.items():
            wait(device)
            began = time.perf_counter()
            for _ in range(steps):
                context: AbstractContextManager[object] = (
                    torch.autocast(device, dtype=torch.bfloat16) if autocast else nullcontext()
                )
                with context:
                    value = loss()
                value.backward()
                optimizers[name].step()
                module.zero_grad(set_to_none=True)
            wait(device)
            if n:  # the first round warms up
                times[name].append((time.perf_counter() - began) / steps * 1000)
    return {name: statistics.median(taken) for name, taken in times.items()}


def wait(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--precision", choices=["tf32", "bf16"], nargs="*", default=["tf32", "bf16"])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--small", action="store_true", help="tiny sizes, to try the script")
    given = parser.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.set_float32_matmul_precision("high")
    width, words = (16, 50) if given.small else (512, 8000)
    wide = 16 if given.small else 1024
    for precision in given.precision:
        cases = {
            "language model, 2 × 512": language_model(width, words, 0.0, device, given.small),
            "language model, 2 × 512, dropout": language_model(width, words, 0.3, device, given.small),
            "language model, 2 × 1024": language_model(wide, words, 0.0, device, given.small),
            "language model, 2 × 1024, dropout": language_model(wide, words, 0.3, device, given.small),
            "translator, general": translator(width, words, 0.3, False, device, given.small),
            "translator, additive, fed": translator(width, words, 0.3, True, device, given.small),
        }
        for case, sides in cases.items():
            found = measure(sides, given.rounds, given.steps, precision == "bf16", device)
            ratio = found["clearhead"] / found["torch.nn"]
            told = "  ".join(f"{name} {ms:8.2f} ms" for name, ms in found.items())
            print(f"{precision}  {case:34} {told}  {ratio:5.2f} × torch.nn's time", flush=True)


if __name__ == "__main__":
    main()
