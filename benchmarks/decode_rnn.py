"""One text decoded on the CPU by a recurrent translator, beside the plain torch loop with the same weights.

    python benchmarks/decode_rnn.py [rounds] [threads]

The plain loop is what anybody would write: nn.LSTM a step at a time, attention by matrix products, an nn.Linear over
the vocabulary, argmax. The sizes are those of the shipped `rnn-attention-en-de`, the weights random; both sides must
write the same tokens. Sides take turns and medians are compared. Needs a quiet machine.
"""

from __future__ import annotations

import copy
import statistics
import sys
import time
from collections.abc import Callable

import torch
from torch import Tensor, nn

from clearhead.models import Model, family
from clearhead.nn.fast.quantized import quantize_

SIZES = {"vocab_size": 8000, "embedding_size": 256, "hidden_size": 512, "readout_size": 256, "dropout": 0.0,
         "tie_word_embeddings": True, "tie_source_embeddings": True, "input_feeding": True}  # fmt: skip
KINDS = {"general": {"attention": "general"}, "additive": {"attention": "additive"}, "none": {"attention": None}}
SOURCE, NEW = 16, 40


class PlainLoop(nn.Module):
    """The same network in torch.nn's words."""

    def __init__(self, model: Model) -> None:
        super().__init__()
        c, t = model.config, dict(model.named_parameters(remove_duplicate=False))
        self.kind = c.attention
        reads = c.embedding_size + c.readout_size + (c.source_width() if c.attention == "additive" else 0)
        self.embedding = nn.Embedding(c.vocab_size, c.embedding_size)
        self.encoder = nn.LSTM(c.embedding_size, c.encoder_width(), batch_first=True, bidirectional=True)
        self.decoder = nn.LSTM(reads, c.hidden_size, batch_first=True)
        self.bridge = nn.ModuleList(nn.Linear(c.source_width(), c.hidden_size) for _ in range(2))
        self.readout = nn.Linear(c.context_width() + c.hidden_size, c.readout_size, bias=False)
        self.output = nn.Linear(c.readout_size, c.vocab_size)
        own = {
            self.embedding: "decoder.embed.tokens.", self.encoder: "encoder.layers.0.rnn.",
            self.decoder: "decoder.layers.0.rnn.", self.bridge[0]: "decoder.bridge.parts.0.0.",
            self.bridge[1]: "decoder.bridge.parts.0.1.", self.readout: "decoder.readout.dense.",
        }  # fmt: skip
        if c.attention is not None:
            self.key = nn.Linear(c.source_width(), c.hidden_size, bias=c.attention == "additive")
            own[self.key] = "decoder.attention.key."
        if c.attention == "additive":
            self.query = nn.Linear(c.hidden_size, c.hidden_size, bias=False)
            self.vector = nn.Linear(c.hidden_size, 1, bias=False)
            own |= {self.query: "decoder.attention.query.", self.vector: "decoder.attention.vector."}
        for module, name in own.items():
            module.load_state_dict({n: t[name + n] for n, _ in module.named_parameters()})
        self.output.load_state_dict({"weight": t["decoder.embed.tokens.weight"], "bias": t["head.output.bias"]})

    def attend(self, h: Tensor, keys: Tensor, memory: Tensor) -> Tensor:
        if self.kind == "general":
            scores = h @ keys.transpose(1, 2)
        else:
            scores = self.vector(torch.tanh(self.query(h)[:, :, None] + keys[:, None]))[..., 0]
        return scores.softmax(-1) @ memory

    @torch.no_grad()
    def forward(self, ids: Tensor, start: int, new: int) -> list[int]:
        memory, (h, c) = self.encoder(self.embedding(ids))
        h = self.bridge[0](h.transpose(0, 1).flatten(1)).tanh()[None]
        c = self.bridge[1](c.transpose(0, 1).flatten(1))[None]
        keys = None if self.kind is None else self.key(memory)
        fed = torch.zeros(1, 1, self.readout.out_features)
        token, written = torch.tensor([[start]]), [start]
        for _ in range(new):
            parts = [self.embedding(token)]
            if self.kind == "additive":
                context = self.attend(h.transpose(0, 1), keys, memory)
                parts.append(context)
            state, (h, c) = self.decoder(torch.cat([*parts, fed], -1), (h, c))
            if self.kind == "general":
                context = self.attend(state, keys, memory)
            fed = torch.tanh(self.readout(state if self.kind is None else torch.cat([context, state], -1)))
            token = self.output(fed).argmax(-1)
            written.append(token.item())
        return written


def sides(kind: str) -> dict[str, Callable[[], list[int]]]:
    torch.manual_seed(0)
    fam = family("rnn-seq2seq")
    model = fam.make(fam.config(**SIZES | KINDS[kind]))
    ids = torch.randint(3, SIZES["vocab_size"], (1, SOURCE))
    plain = PlainLoop(model).eval()

    def ours(model: Model) -> list[int]:
        written = model.generate(ids, max_new_tokens=NEW, eos_token_id=[], num_beams=1)
        return written[0].tolist()  # type: ignore[no-any-return, union-attr]

    rounded = quantize_(copy.deepcopy(model), "int8")
    found = {
        "plain torch": lambda: plain(ids, 1, NEW),
        "clearhead float32": lambda: ours(model),
        "clearhead int8": lambda: ours(rounded),  # type: ignore[arg-type]
    }
    if found["plain torch"]() != found["clearhead float32"]():
        raise SystemExit(f"{kind}: the two sides write different tokens.")
    return found


def measure(rounds: int, threads: int) -> None:
    torch.set_num_threads(threads)
    for kind in KINDS:
        both = sides(kind)
        times: dict[str, list[float]] = {name: [] for name in both}
        for _ in range(rounds):
            for name, write in both.items():
                began = time.perf_counter()
                write()
                times[name].append(time.perf_counter() - began)
        middle = {name: statistics.median(taken) for name, taken in times.items()}
        for name, seconds in middle.items():
            ratio = middle["plain torch"] / seconds
            print(f"attention {kind:9} {name:18} {NEW / seconds:7.0f} tokens/s  {ratio:5.2f} × plain torch")


if __name__ == "__main__":
    measure(*(int(a) for a in (sys.argv[1:] + ["7", "2"][len(sys.argv) - 1 :])))
