"""A model as one that `transformers` opens: the 2017 Transformer becomes a Marian or a Pegasus of the same numbers.

Both are that Transformer with its norms after the sublayers (Marian) or before them (Pegasus). Their sinusoids stand in
two halves, sines and then cosines, where the paper's alternate; so the numbers of every vector are put in that order,
and the rows and columns of all weights with them, which changes no output.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from clearhead import models
from clearhead.errors import InputError
from clearhead.models import Model
from clearhead.models.transformer import TransformerConfig
from clearhead.schema import shown


def in_format(model: Model, format: str | None) -> Model:
    """The model as it is to be saved: None as what it is, "transformers" as what that library opens."""
    if format not in (None, "transformers"):
        raise InputError(f'The format is {shown(format)}; it can be "transformers", or left out for the family\'s own.')
    return model if format is None else for_transformers(model)


def for_transformers(model: Model) -> Model:
    """The model as it is where `transformers` knows its family; else one of a family that it does know."""
    if not model.family.own_format or model.quantized:  # which is not saved
        return model
    config = model.config
    if not isinstance(config, TransformerConfig):
        raise InputError(f"transformers does not know {model.family.title}, nor another family of the same layers.")
    family = models.family("pegasus" if config.norm_first else "marian")
    _check(config, family.title)
    exported = family.make(family.config(**_options(config)), "seq2seq-lm")
    order = _order(config)
    tensors = {name: _reordered(name, t, order) for name, t in model.state_dict().items()}
    # zeros for the biases that it lacks
    state = {name: tensors.get(name, torch.zeros_like(t)) for name, t in exported.state_dict().items()}
    exported.load_state_dict(state)
    exported.tie_weights()
    exported.generation = dict(model.generation)
    return exported.to(dtype=model.dtype, device=model.device)


def _check(config: TransformerConfig, title: str) -> None:
    """Refuse what Marian and Pegasus cannot be."""
    reasons = {
        "its positions are learned": config.positions != "sinusoidal",
        "its last norms are not where Pegasus or Marian has them": config.norm_first != config.final_norm,
        "layer_norm_eps is not 1e-5": config.layer_norm_eps != 1e-5,
        "each language has a vocabulary of its own": config.norm_first and not _one_size(config),
        "source and target have tables of their own": config.norm_first
        and config.tie_word_embeddings
        and not config.tie_source_embeddings,
    }
    for reason, holds in reasons.items():
        if holds:
            raise InputError(
                f"transformers does not know this family, and this model cannot be written as {title}, which it does: "
                f"{reason}. Saved without format= it opens in Clearhead."
            )


def _one_size(config: TransformerConfig) -> bool:
    return config.source_vocab_size in (None, config.vocab_size)


def _options(config: TransformerConfig) -> dict[str, Any]:
    same = (
        "hidden_size max_position_embeddings scale_embedding dropout attention_dropout activation_dropout "
        "bos_token_id eos_token_id pad_token_id sep_token_id decoder_start_token_id forced_bos_token_id "
        "forced_eos_token_id bad_words_ids tie_word_embeddings"
    ).split()
    options = {name: getattr(config, name) for name in same} | {
        "num_hidden_layers": config.encoder_layers,
        "decoder_layers": config.num_hidden_layers,
        "num_attention_heads": config.num_attention_heads,
        "decoder_attention_heads": config.num_attention_heads,
        "encoder_ffn_dim": config.feedforward_size,
        "decoder_ffn_dim": config.feedforward_size,
        "activation_function": config.activation,
        "vocab_size": config.source_vocab_size or config.vocab_size,
    }
    if not config.norm_first:
        options["decoder_vocab_size"] = config.vocab_size
        options["share_encoder_decoder_embeddings"] = config.tie_source_embeddings
    return options


def _order(config: TransformerConfig) -> Tensor:
    """For each place in a vector, where its number was."""
    columns = torch.arange(config.hidden_size)
    return torch.cat([columns[0::2], columns[1::2]]) if config.sinusoidal_layout == "interleaved" else columns


def _reordered(name: str, tensor: Tensor, order: Tensor) -> Tensor:
    """Rows of what writes into the residual stream, columns of what reads from it."""
    tensor, order = tensor.detach(), order.to(tensor.device)
    *_, module, kind = name.split(".")
    if (
        module.endswith("norm")
        or name.endswith(("attention.output.weight", "attention.output.bias"))
        or module == "down"
    ):
        return tensor[order]
    return tensor[:, order] if kind == "weight" else tensor
