"""How much a model multiplies for one position: every weight of every matrix once, whatever kind of layer it is in."""

from __future__ import annotations

from torch import nn

from clearhead.nn.character_cnn import CharacterCNN
from clearhead.nn.clipped_lstm import ClippedLSTM
from clearhead.nn.fused_recurrence import matrices_of


def multiply_adds(model: nn.Module) -> int:
    """Without the attention's own products, which depend on how many positions are seen."""
    return sum(_of_module(module) for module in model.modules())


def _of_module(module: nn.Module) -> int:
    if isinstance(module, nn.Linear):
        return module.in_features * module.out_features
    if isinstance(module, nn.RNNBase):
        return sum(weight.numel() for weight in matrices_of(module))
    if isinstance(module, ClippedLSTM):
        return sum(weight.numel() for weight in module.parameters() if weight.ndim == 2)
    return module.multiply_adds if isinstance(module, CharacterCNN) else 0
