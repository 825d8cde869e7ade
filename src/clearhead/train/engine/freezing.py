"""Which layers learn, and how fast: the upper ones first and most, because the lower ones hold what is general.

Layers are counted from the top. 0 is the head, 1 the last layer, and so on down to the embeddings; an
encoder lies below its decoder. A tensor that several layers share (ALBERT's layers, a tied output matrix) belongs to
the lowest of them, and a place that is left without tensors of its own is not counted.
"""

from __future__ import annotations

from torch import nn

from clearhead.errors import InputError, did_you_mean
from clearhead.models.model import Model
from clearhead.models.retrieval import RetrievalModel
from clearhead.train.engine.optim import parameter_names

FREEZABLE = ("encoder", "embeddings", "all-but-head", "all-but-retrieval")


def depths(model: nn.Module) -> dict[str, int]:
    """Parameter name -> how far below the top it lies, for all that learn."""
    below: dict[nn.Parameter, int] = {}
    for part in model.modules():  # a model, or a module that trains several side by side
        if isinstance(part, Model):
            groups = _layer_groups(part)
            for n, group in enumerate(groups):
                for p in group:
                    below.setdefault(p, len(groups) - 1 - n)
    return {name: below.get(p, 0) for name, p in parameter_names(model).items()}


def _layer_groups(model: Model) -> list[list[nn.Parameter]]:
    """The parameters that learn, place by place, from the embeddings up to the head."""
    stacks = list(model.stacks.values())
    layers = [layer for stack in stacks for layer in stack.layers]
    ends = {id(stack.layers[-1]): stack.final_norm for stack in stacks if stack.final_norm is not None}
    upper = {p for module in [*layers, *ends.values()] for p in module.parameters()}
    bottom = [p for stack in stacks for p in stack.embed.parameters()]
    bottom += [p for stack in stacks for p in stack.parameters() if p not in upper]  # what all layers read
    candidates = [bottom]
    for layer in layers:
        end = ends.get(id(layer))
        candidates.append([*layer.parameters(), *(end.parameters() if end is not None else ())])
    candidates.append(list(model.parameters()))
    seen: set[nn.Parameter] = set()
    groups = []
    for group in candidates:
        new = [p for p in dict.fromkeys(group) if p.requires_grad and p not in seen]
        seen.update(new)
        if new:
            groups.append(new)
    return groups


def discriminative(model: nn.Module, decay: float = 1 / 2.6) -> dict[str, float]:
    """Parameter name -> what multiplies its learning rate: 1 at the top, and `decay` once more for every layer below.

    ULMFiT found 1/2.6. For `optimizer(…, lr_factors=…)`.
    """
    if not 0 < decay <= 1:
        raise InputError(f"Each layer below learns by a share of the rate above it, such as 0.9 or 0.38, not {decay}.")
    return {name: decay**depth for name, depth in depths(model).items()}


class Unfreezing:
    """ULMFiT's gradual unfreezing: at first the head alone learns, and `every` updates later one layer more.

    What is frozen gets no gradient, so the optimiser neither moves nor decays it, nor touches its state. Which
    layers learn depends on the step alone. Make it after the optimiser, which must know all parameters.
    """

    def __init__(self, model: nn.Module, every: int) -> None:
        if every < 1:
            raise InputError(f"One more layer learns after every so many updates, at least 1, not {every}.")
        self.every = every
        self.depths = depths(model)
        self.parameters = parameter_names(model)
        self.groups = 1 + max(self.depths.values(), default=0)

    def learning(self, step: int) -> int:
        """How many groups, from the top, learn in the update after `step` others."""
        return min(self.groups, 1 + step // self.every)

    def apply(self, step: int) -> bool:
        """Freeze and unfreeze for this step. True where something changed."""
        learning, changed = self.learning(step), False
        for name, p in self.parameters.items():
            learns = self.depths[name] < learning
            if p.requires_grad != learns:
                p.requires_grad_(learns)
                p.grad = None
                changed = True
        return changed


def freeze(model: Model, part: str) -> None:
    """Keep a part as it is for good; call it before the optimiser is made.

    encoder             the encoder of an encoder–decoder; the whole stack under the head of any other model
    embeddings          tokens, positions, segments, with their norm
    all-but-head        everything under the head
    all-but-retrieval   of a model that retrieves, the language model that it was made of (RETROfit)

    A tensor that a frozen part shares with another is frozen: a tied output matrix, with the embeddings.
    """
    if part not in FREEZABLE:
        raise InputError(
            f"{part!r} cannot be frozen.{did_you_mean(part, FREEZABLE)} It can be: {', '.join(FREEZABLE)}."
        )
    if part == "all-but-retrieval":
        if not isinstance(model, RetrievalModel):
            raise InputError(f"{model.family.title} looks at no neighbours: it has no parts for retrieval.")
        new = model.retrieval_parameters()
        for name, parameter in model.named_parameters():
            parameter.requires_grad_(name in new)
        return
    stacks = model.stacks
    if part == "encoder" and model.is_encoder_decoder:
        stacks = {"encoder": stacks["encoder"]}
    for stack in stacks.values():
        (stack.embed if part == "embeddings" else stack).requires_grad_(False)
    if not parameter_names(model):
        raise InputError(
            f"With {part} frozen nothing is left to learn: this head has no weights of its own (its matrix is the "
            "token table). Freeze less."
        )
