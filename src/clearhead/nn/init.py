"""Ways to draw the first weights: the papers' own."""

import math

import torch
from torch import nn

from clearhead.nn.attention import Attention
from clearhead.nn.feedforward import FeedForward
from clearhead.nn.norms import RMSNorm
from clearhead.nn.positions import RelativeBuckets


def _fill_rest(model: nn.Module, std: float) -> None:
    """Everything that is no matrix of attention or feed-forward: norms at one, biases at zero, tables at `std`."""
    for module in model.modules():
        if isinstance(module, nn.Embedding):
            nn.init.normal_(module.weight, std=std)
            if module.padding_idx is not None:
                nn.init.zeros_(module.weight[module.padding_idx])
        elif isinstance(module, nn.LayerNorm | RMSNorm):
            nn.init.ones_(module.weight)
            if getattr(module, "bias", None) is not None:
                nn.init.zeros_(module.bias)  # type: ignore[arg-type]
        elif isinstance(module, nn.Linear) and module.bias is not None:
            nn.init.zeros_(module.bias)


def _matrices(model: nn.Module) -> list[nn.Linear]:
    """Every linear layer but those whose weight is an embedding table as well (a tied output)."""
    tables = {id(m.weight) for m in model.modules() if isinstance(m, nn.Embedding)}
    return [m for m in model.modules() if isinstance(m, nn.Linear) and id(m.weight) not in tables]


@torch.no_grad()
def init_normal(model: nn.Module, std: float = 0.02) -> None:
    """BERT: every matrix from a normal of one width."""
    _fill_rest(model, std)
    for linear in _matrices(model):
        nn.init.normal_(linear.weight, std=std)


@torch.no_grad()
def init_gpt2(model: nn.Module, std: float = 0.02, layers: int = 12) -> None:
    """GPT-2: as BERT, but what writes into the residual stream is narrower by √(2 · layers), one per addition."""
    init_normal(model, std)
    for module in model.modules():
        if isinstance(module, Attention):
            nn.init.normal_(module.output.weight, std=std / math.sqrt(2 * layers))
        elif isinstance(module, FeedForward):
            nn.init.normal_(module.down.weight, std=std / math.sqrt(2 * layers))


@torch.no_grad()
def init_xavier(model: nn.Module, embedding_std: float) -> None:
    """The 2017 Transformer: Glorot uniform for matrices, 1/√d_model for the tables."""
    _fill_rest(model, embedding_std)
    for linear in _matrices(model):
        nn.init.xavier_uniform_(linear.weight)
    for module in model.modules():
        if isinstance(module, Attention) and module.fused:
            sizes = [module.heads * module.head_dim] + 2 * [module.kv_heads * module.head_dim]
            parts = module.key_value.weight.split(sizes[1:]) if module.cross else module.qkv.weight.split(sizes)
            for part in parts:  # each of q, k, v is a matrix of its own
                nn.init.xavier_uniform_(part)


@torch.no_grad()
def init_recurrent(model: nn.Module, embedding_std: float = 0.1) -> None:
    """Recurrent networks: orthogonal matrices from state to state, one for each gate, so that a gradient neither grows
    nor fades at first; Glorot uniform for all others; and an LSTM that remembers, its forget gate's bias at one."""
    _fill_rest(model, embedding_std)
    for linear in _matrices(model):
        nn.init.xavier_uniform_(linear.weight)
    for rnn in (module for module in model.modules() if isinstance(module, nn.RNNBase)):
        for name, weight in rnn.named_parameters():
            if name.startswith("bias"):
                nn.init.zeros_(weight)
                if rnn.mode == "LSTM" and name.startswith("bias_ih"):
                    nn.init.ones_(weight[rnn.hidden_size : 2 * rnn.hidden_size])
            elif name.startswith("weight_hr"):
                nn.init.xavier_uniform_(weight)
            else:
                draw = nn.init.orthogonal_ if name.startswith("weight_hh") else nn.init.xavier_uniform_
                for gate in weight.split(rnn.hidden_size):
                    draw(gate)


@torch.no_grad()
def init_t5(model: nn.Module, width: int, head_dim: int, factor: float = 1.0) -> None:
    """T5: no 1/√d in the scores; queries start narrower by it instead, so scores still start at unit variance."""
    _fill_rest(model, factor)
    for linear in _matrices(model):  # an untied output; the rest is drawn again below
        nn.init.normal_(linear.weight, std=factor)
    for module in model.modules():
        if isinstance(module, Attention):
            nn.init.normal_(module.query.weight, std=factor * (width * head_dim) ** -0.5)
            nn.init.normal_(module.key.weight, std=factor * width**-0.5)
            nn.init.normal_(module.value.weight, std=factor * width**-0.5)
            nn.init.normal_(module.output.weight, std=factor * (module.heads * head_dim) ** -0.5)
        elif isinstance(module, FeedForward):
            for up in (module.up, module.gate):
                if up is not None:
                    nn.init.normal_(up.weight, std=factor * width**-0.5)
            nn.init.normal_(module.down.weight, std=factor * module.down.in_features**-0.5)
        elif isinstance(module, RelativeBuckets):
            nn.init.normal_(module.table.weight, std=factor * width**-0.5)
