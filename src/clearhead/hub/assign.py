"""Moving tensors between a model and a checkpoint by the family's map, in both directions."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from functools import reduce

import torch
from torch import Tensor, nn

from clearhead.errors import CheckpointError
from clearhead.hub.matching import Match, Matching, check
from clearhead.hub.weights import FLOATS, Weights
from clearhead.models.checkpoint import CheckpointMap
from clearhead.models.model import Model

log = logging.getLogger("clearhead")


def assign_weights(
    model: Model,
    weights: Weights,
    *,
    new_head: bool,
    dtype: torch.dtype | None,
    device: torch.device,
    ignore_mismatched_head: bool = False,
    contiguous: bool = True,
    strict: bool = False,
    guessed: bool = False,
) -> None:
    """Give a model that lives on the meta device its weights.

    new_head     the model has another head than the checkpoint: what the head lacks is drawn afresh, and said
    ignore_mismatched_head
                 the same for what the head has in another shape
    contiguous   matrices that the file holds transposed (GPT-2's) are copied, one at a time, into the order that
                 products of a few rows read fastest; all else stays mapped. False: they stay transposed views
    strict, guessed
                 what to make of tensors that belong to no head of the family (see matching.py)
    """
    matching = Matching(model.family, model.config, model.task, weights)
    matching.drop_missing_pooler(model)
    if ignore_mismatched_head:
        matching.drop_misshapen_head(model, weights)
    check(matching, model, weights, new_head=new_head, strict=strict, guessed=guessed)
    matches = matching.matches

    dtype = dtype or _common_dtype(weights, matches)
    shared = _shared_parameters(model, matching.map)
    for match in matches:
        if match.names is None:
            continue
        entry = match.entry
        as_type = torch.float32 if entry.wide and dtype == torch.float16 else dtype
        column_major = contiguous and entry.transpose
        tensors = [weights.read(name, as_type, device, column_major=column_major) for name in match.stored]
        for other in matching.other_spellings(match):
            if not torch.equal(tensors[0], weights.read(other, as_type, device)):
                raise CheckpointError(
                    f"The file holds {match.stored[0]} and {other}, which are one matrix in {model.family.title}, and "
                    "the two differ: one of them would be ignored. Save the model with a table for each side, where "
                    "its family has such an option (share_encoder_decoder_embeddings), or remove the one that is old."
                )
        parts = entry.to_ours(tensors, [_parameter(model, name).shape[0] for name in entry.ours])
        for name, part in zip(entry.ours, parts, strict=True):
            assign(model, name, part.contiguous() if contiguous else part)
            for other in shared.get(name, ()):
                assign(model, other, _parameter(model, name))
    _tie(model, matches)
    _initialise_rest(model, dtype, device)


def published_tensors(model: Model) -> Iterator[tuple[str, Tensor]]:
    """What to save, under the published names; tensors that another one stands for are left out."""
    map_ = model.family.checkpoint_map(model.config, model.task)
    with_prefix = model.task != "features" or map_.always_prefixed
    for entry in map_.entries:
        if any(_absent(model, name) for name in entry.ours):
            continue  # a pooler that the checkpoint never had
        tensors = [_parameter(model, name) for name in entry.ours]
        if entry.tied_to is not None and tensors[0] is _parameter(model, entry.tied_to):
            continue
        parts = entry.to_theirs([t.detach() for t in tensors])
        for name, part in zip(entry.theirs, parts, strict=True):
            yield map_.published_name(name, entry, with_prefix), part
        for copy in entry.copies:
            yield map_.published_name(copy, entry, with_prefix), parts[0].clone()
    for name, compute in map_.computed.items():
        yield name, compute()


def _shared_parameters(model: Model, map_: CheckpointMap) -> dict[str, list[str]]:
    """Parameters that were built as one with a mapped one, and that no entry maps themselves (ALBERT's layers)."""
    mapped = {name for entry in map_.entries for name in entry.ours}
    source = {id(p): name for name, p in model.named_parameters(remove_duplicate=False) if name in mapped}
    shared: dict[str, list[str]] = {}
    for name, p in model.named_parameters(remove_duplicate=False):
        if name not in mapped and id(p) in source:
            shared.setdefault(source[id(p)], []).append(name)
    return shared


def _tie(model: Model, matches: list[Match]) -> None:
    """Where the config ties two tensors and the file holds one, or the same twice: make them one."""
    for match in matches:
        entry = match.entry
        if entry.tied_to is None:
            continue
        name, source = entry.ours[0], _parameter(model, entry.tied_to)
        own = _parameter(model, name)
        if own is source:
            continue
        if source.is_meta:
            assign(model, entry.tied_to, own)
        elif match.names is None or torch.equal(own, source):
            assign(model, name, source)
        else:
            log.warning(
                "The configuration ties %s to the embeddings, but the file holds another matrix for it: "
                "the file's is used.",
                entry.theirs[0],
            )
            if name.startswith("head."):
                model.config.tie_word_embeddings = False  # type: ignore[attr-defined]


def _initialise_rest(model: Model, dtype: torch.dtype, device: torch.device) -> None:
    """Fresh weights for what is still on the meta device (a new head), and computed tables."""
    for module in model.modules():
        own = dict(module.named_parameters(recurse=False))
        if any(p.is_meta for p in own.values()):
            for name, p in own.items():
                fresh = torch.empty(p.shape, dtype=dtype, device=device)
                setattr(module, name, nn.Parameter(fresh, requires_grad=p.requires_grad))
            model.family.init(model.config, module)
            for name, p in own.items():  # what the file did hold stays
                if not p.is_meta:
                    setattr(module, name, p)
        for name, buffer in list(module.named_buffers(recurse=False)):
            if buffer.is_meta:
                module.register_buffer(name, torch.empty(buffer.shape, device=device), persistent=False)
                module.reset_parameters()  # type: ignore[operator]


def _common_dtype(weights: Weights, matches: list[Match]) -> torch.dtype:
    """The files' own dtype; where they mix several, the widest (apart from tensors that are wider on purpose)."""
    stored = {weights.dtype(name) for m in matches if m.names and not m.entry.wide for name in m.stored}
    return reduce(torch.promote_types, [dtype for dtype in FLOATS if str(dtype).removeprefix("torch.") in stored])


def _parameter(model: nn.Module, name: str) -> nn.Parameter:
    return model.get_parameter(name)


def _absent(model: nn.Module, name: str) -> bool:
    try:
        return model.get_parameter(name) is None
    except AttributeError:
        return True


def assign(model: nn.Module, name: str, tensor: Tensor) -> None:
    path, _, own = name.rpartition(".")
    learns = tensor.is_floating_point() and _parameter(model, name).requires_grad
    parameter = tensor if isinstance(tensor, nn.Parameter) else nn.Parameter(tensor, requires_grad=learns)
    setattr(model.get_submodule(path), own, parameter)
