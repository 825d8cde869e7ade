"""Moving tensors between a model and a checkpoint by the family's map, in both directions."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from functools import reduce

import torch
from torch import Tensor, nn

from clearhead.errors import CheckpointError
from clearhead.hub.weights import FLOATS, Weights, first_few
from clearhead.models.checkpoint import CheckpointMap, Entry
from clearhead.models.heads import FeaturesHead
from clearhead.models.model import Model

log = logging.getLogger("clearhead")


@dataclass
class _Match:
    """Where the tensors of one entry are in the checkpoint."""

    entry: Entry
    names: list[str] | None  # published; None where the checkpoint lacks one of them
    stored: list[str]  # the same as the file spells them

    @property
    def of_head(self) -> bool:
        return self.entry.ours[0].startswith("head.")


def assign_weights(
    model: Model,
    weights: Weights,
    *,
    new_head: bool,
    dtype: torch.dtype | None,
    device: torch.device,
    ignore_mismatched_head: bool = False,
    contiguous: bool = True,
) -> None:
    """Give a model that lives on the meta device its weights.

    new_head     the model has another head than the checkpoint: what the head lacks is drawn afresh, and said
    ignore_mismatched_head
                 the same for what the head has in another shape
    contiguous   matrices that the file holds transposed (GPT-2's) are copied, one at a time, into the order that
                 products of a few rows read fastest; all else stays mapped. False: they stay transposed views
    """
    map_ = model.family.checkpoint_map(model.config, model.task)
    stored_names = {map_.spelt_now(name): name for name in weights}  # published name → the file's own spelling
    with_prefix = bool(map_.prefix) and any(name.startswith(map_.prefix) for name in stored_names)
    matches = [_match(entry, map_, stored_names, with_prefix) for entry in map_.entries]
    _drop_missing_pooler(model, matches)
    if ignore_mismatched_head:
        for match in matches:
            if match.of_head and match.entry.tied_to is None and match.names and not _fits(model, match, weights):
                match.names = None
    _check(model, map_, matches, stored_names, weights, with_prefix, new_head)

    dtype = dtype or _common_dtype(weights, matches)
    shared = _shared_parameters(model, map_)
    for match in matches:
        if match.names is None:
            continue
        entry = match.entry
        as_type = torch.float32 if entry.wide and dtype == torch.float16 else dtype
        column_major = contiguous and entry.transpose
        tensors = [weights.read(name, as_type, device, column_major=column_major) for name in match.stored]
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
    with_prefix = model.task != "features"
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


def _match(entry: Entry, map_: CheckpointMap, stored_names: dict[str, str], with_prefix: bool) -> _Match:
    for theirs in ((name,) for name in entry.or_else) if entry.or_else else (entry.theirs,):
        names = [map_.published_name(name, entry, with_prefix) for name in theirs]
        if all(name in stored_names for name in names):
            return _Match(entry, names, [stored_names[name] for name in names])
    return _Match(entry, None, [])


def _drop_missing_pooler(model: Model, matches: list[_Match]) -> None:
    """A checkpoint without a pooler still has features; a random pooler would only mislead."""
    if isinstance(model.head, FeaturesHead) and model.head.pooler is not None:
        of_pooler = [match for match in matches if match.entry.ours[0].startswith("head.pooler")]
        if all(match.names is None for match in of_pooler):
            model.head.pooler = None
            for match in of_pooler:
                matches.remove(match)


def _check(
    model: Model,
    map_: CheckpointMap,
    matches: list[_Match],
    stored_names: dict[str, str],
    weights: Weights,
    with_prefix: bool,
    new_head: bool,
) -> None:
    """Refuse a file that lacks something, has something that belongs nowhere, or has it in another shape or type."""
    absent = [m for m in matches if m.names is None and not m.entry.optional and not _has_twin(matches, m.entry)]
    fresh = [m for m in absent if new_head and m.of_head]
    missing = _published([m for m in absent if m not in fresh], map_, with_prefix)
    floats = {str(dtype).removeprefix("torch.") for dtype in FLOATS}
    stored = [name for match in matches if match.names is not None for name in match.stored]
    not_floating = [f"{name} ({weights.dtype(name)})" for name in stored if weights.dtype(name) not in floats]
    shapes = [_mismatch(model, m, weights) for m in matches if m.names is not None and not _fits(model, m, weights)]
    extra, unused = _unmatched(model, map_, matches, stored_names)

    problems = []
    if missing:
        problems.append(f"{len(missing)} tensors are missing: {first_few(missing)}")
    if extra:
        problems.append(f"{len(extra)} tensors do not belong to this model: {first_few(extra)}")
    if not_floating:
        problems.append(f"only floating-point weights can be used as they are, not {first_few(not_floating)}")
    if shapes:
        problems.append("shapes differ: " + "; ".join(shapes[:6]) + (f"; {len(shapes) - 6} more" * (len(shapes) > 6)))
    if problems:
        raise CheckpointError(
            f"The weights do not fit their configuration ({model.family.title}, {model.task}): "
            + ". ".join(problems)
            + ". Do config.json and the weight file belong together?"
        )
    if unused:
        log.info("Not needed for %s, left unread: %s", model.task, first_few(unused))
    if fresh:
        log.warning(
            "The checkpoint has no head for %s: %s start from random values. Train before you rely on them.",
            model.task,
            first_few(_published(fresh, map_, with_prefix)),
        )


def _published(matches: list[_Match], map_: CheckpointMap, with_prefix: bool) -> list[str]:
    return [map_.published_name(name, m.entry, with_prefix) for m in matches for name in m.entry.theirs]


def _unmatched(
    model: Model, map_: CheckpointMap, matches: list[_Match], stored_names: dict[str, str]
) -> tuple[list[str], list[str]]:
    """Tensors of the file that no entry asks for: (those of no head of the family, those of another head)."""
    used = {name for match in matches for name in match.names or ()}
    for match in matches:
        for name in (*match.entry.or_else, *match.entry.copies):
            used |= {map_.published_name(name, match.entry, with_prefix) for with_prefix in (True, False)}
    unmatched = [name for name in stored_names if name not in used and not map_.is_skipped(name)]
    known: set[str] = set()
    for task in model.family.architectures if unmatched else ():
        known |= model.family.checkpoint_map(model.config, task).all_names()
    return [name for name in unmatched if name not in known], [name for name in unmatched if name in known]


def _fits(model: Model, match: _Match, weights: Weights) -> bool:
    """Whether the tensors of the file, one after the other, are as large as those of the model."""
    expected = [tuple(_parameter(model, name).shape) for name in match.entry.ours]
    stored = [match.entry.shape_here(weights.shape(name)) for name in match.stored]
    rows = sum(shape[0] for shape in expected if shape)
    return sum(s[0] for s in stored if s) == rows and {s[1:] for s in stored} == {s[1:] for s in expected}


def _mismatch(model: Model, match: _Match, weights: Weights) -> str:
    stored = _format_shapes([weights.shape(name) for name in match.stored])
    ours = [tuple(_parameter(model, name).shape) for name in match.entry.ours]
    needed = _format_shapes([match.entry.shape_there(shape) for shape in ours])
    return f"{' + '.join(match.names or ())}: the file has {stored}, the configuration needs {needed}"


def _shared_parameters(model: Model, map_: CheckpointMap) -> dict[str, list[str]]:
    """Parameters that were built as one with a mapped one, and that no entry maps themselves (ALBERT's layers)."""
    mapped = {name for entry in map_.entries for name in entry.ours}
    source = {id(p): name for name, p in model.named_parameters(remove_duplicate=False) if name in mapped}
    shared: dict[str, list[str]] = {}
    for name, p in model.named_parameters(remove_duplicate=False):
        if name not in mapped and id(p) in source:
            shared.setdefault(source[id(p)], []).append(name)
    return shared


def _has_twin(matches: list[_Match], entry: Entry) -> bool:
    """Whether a tensor that is tied to this one, or that this one is tied to, is stored in its place."""
    first = entry.ours[0]
    return any(m.names is not None and (m.entry.ours[0] == entry.tied_to or m.entry.tied_to == first) for m in matches)


def _tie(model: Model, matches: list[_Match]) -> None:
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


def _common_dtype(weights: Weights, matches: list[_Match]) -> torch.dtype:
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


def _format_shapes(shapes: list[tuple[int, ...]]) -> str:
    return " + ".join("×".join(map(str, shape)) or "a single number" for shape in shapes)
