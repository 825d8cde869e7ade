"""Moving tensors between a model and a checkpoint by the family's map, in both directions."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from functools import reduce

import torch
from torch import Tensor, nn

from clearhead.errors import CheckpointError
from clearhead.hub.weights import FLOATS, Weights, some
from clearhead.models.checkpoint import CheckpointMap, Entry
from clearhead.models.heads import FeaturesHead
from clearhead.models.model import Model

log = logging.getLogger("clearhead")


@dataclass
class _Found:
    """Where the tensors of one entry are in the checkpoint; None where they are not."""

    entry: Entry
    names: list[str] | None


def fill(
    model: Model,
    weights: Weights,
    *,
    new_head: bool,
    dtype: torch.dtype | None,
    device: torch.device,
    refit: bool = False,
    contiguous: bool = True,
) -> None:
    """Give a model that lives on the meta device its weights.

    new_head   the model has another head than the checkpoint: what the head lacks is drawn afresh, and said
    refit      the same for what the head has in another shape
    contiguous matrices that the file holds transposed (GPT-2's) are copied, one at a time, into the order that products
               of a few rows read fastest; all else stays mapped. False: they stay transposed views of the file
    """
    map_ = model.family.checkpoint_map(model.config, model.task)
    by_name = {map_.spelt_now(name): name for name in weights}
    with_prefix = bool(map_.prefix) and any(name.startswith(map_.prefix) for name in by_name)
    found = [_Found(entry, _find(entry, map_, by_name, with_prefix)) for entry in map_.entries]
    _drop_missing_pooler(model, found)
    if refit:
        for item in found:
            of_head = item.entry.ours[0].startswith("head.") and item.entry.tied_to is None
            if of_head and item.names is not None and not _fits(model, item, weights, by_name):
                item.names = None
    _check(model, map_, found, by_name, weights, with_prefix, new_head)

    target = dtype or _common_dtype(weights, found, by_name)
    sharing = _sharing(model, map_)
    for item in found:
        if item.names is None:
            continue
        goal = torch.float32 if item.entry.wide and target == torch.float16 else target
        ours = [_parameter(model, name) for name in item.entry.ours]
        column_major = contiguous and item.entry.transpose
        tensors = [weights.read(by_name[name], goal, device, column_major=column_major) for name in item.names]
        parts = item.entry.to_ours(tensors, [p.shape[0] for p in ours])
        for name, part in zip(item.entry.ours, parts, strict=True):
            _assign(model, name, part.contiguous() if contiguous else part)
            for other in sharing.get(name, ()):
                _assign(model, other, _parameter(model, name))
    _tie(model, found)
    _draw_rest(model, target, device)


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


def _find(entry: Entry, map_: CheckpointMap, by_name: dict[str, str], with_prefix: bool) -> list[str] | None:
    for theirs in ((name,) for name in entry.or_else) if entry.or_else else (entry.theirs,):
        names = [map_.published_name(name, entry, with_prefix) for name in theirs]
        if all(name in by_name for name in names):
            return names
    return None


def _drop_missing_pooler(model: Model, found: list[_Found]) -> None:
    """A checkpoint without a pooler still has features; a random pooler would only mislead."""
    if isinstance(model.head, FeaturesHead) and model.head.pooler is not None:
        of_pooler = [item for item in found if item.entry.ours[0].startswith("head.pooler")]
        if all(item.names is None for item in of_pooler):
            model.head.pooler = None
            for item in of_pooler:
                found.remove(item)


def _check(
    model: Model,
    map_: CheckpointMap,
    found: list[_Found],
    by_name: dict[str, str],
    weights: Weights,
    with_prefix: bool,
    new_head: bool,
) -> None:
    missing: list[str] = []
    fresh: list[str] = []
    shapes: list[str] = []
    odd: list[str] = []
    floats = {str(dtype).removeprefix("torch.") for dtype in FLOATS}
    for item in found:
        entry = item.entry
        if item.names is None:
            source_there = entry.tied_to is not None and _tied_source(found, entry) is not None
            if source_there or entry.optional or _stands_for_source(found, entry):
                continue
            is_head = entry.ours[0].startswith("head.")
            names = [map_.published_name(name, entry, with_prefix) for name in entry.theirs]
            (fresh if new_head and is_head else missing).extend(names)
            continue
        for name in item.names:
            if weights.dtype(by_name[name]) not in floats:
                odd.append(f"{by_name[name]} ({weights.dtype(by_name[name])})")
        if not _fits(model, item, weights, by_name):
            given = [weights.shape(by_name[name]) for name in item.names]
            want = [entry.shape_there(tuple(_parameter(model, name).shape)) for name in entry.ours]
            shapes.append(
                f"{' + '.join(item.names)}: the file has {_shown(given)}, the configuration needs {_shown(want)}"
            )
    used = {name for item in found for name in item.names or ()}
    used |= {
        map_.published_name(c, i.entry, p)
        for i in found
        for c in (*i.entry.or_else, *i.entry.copies)
        for p in (True, False)
    }
    left = [name for name in by_name if name not in used and not map_.is_skipped(name)]
    known: set[str] = set()
    if left:
        for task in model.family.architectures:
            known |= model.family.checkpoint_map(model.config, task).all_names()
    extra = [name for name in left if name not in known]

    problems = []
    if missing:
        problems.append(f"{len(missing)} tensors are missing: {some(missing)}")
    if extra:
        problems.append(f"{len(extra)} tensors do not belong to this model: {some(extra)}")
    if odd:
        problems.append(f"only floating-point weights can be used as they are, not {some(odd)}")
    if shapes:
        problems.append("shapes differ: " + "; ".join(shapes[:6]) + (f"; {len(shapes) - 6} more" * (len(shapes) > 6)))
    if problems:
        raise CheckpointError(
            f"The weights do not fit their configuration ({model.family.title}, {model.task}): "
            + ". ".join(problems)
            + ". Do config.json and the weight file belong together?"
        )
    unused = [name for name in left if name in known]
    if unused:
        log.info("Not needed for %s, left unread: %s", model.task, some(unused))
    if fresh:
        log.warning(
            "The checkpoint has no head for %s: %s start from random values. Train before you rely on them.",
            model.task,
            some(fresh),
        )


def _fits(model: Model, item: _Found, weights: Weights, by_name: dict[str, str]) -> bool:
    """Whether the tensors of the file, one after the other, are as large as those of the model."""
    expected = [tuple(_parameter(model, name).shape) for name in item.entry.ours]
    fits = [item.entry.shape_here(weights.shape(by_name[name])) for name in item.names or ()]
    rows = sum(shape[0] for shape in expected if shape)
    return sum(s[0] for s in fits if s) == rows and {s[1:] for s in fits} == {s[1:] for s in expected}


def _sharing(model: Model, map_: CheckpointMap) -> dict[str, list[str]]:
    """Parameters that were built as one with a mapped one, and that no entry maps themselves (ALBERT's layers)."""
    mapped = {name for entry in map_.entries for name in entry.ours}
    source = {id(p): name for name, p in model.named_parameters(remove_duplicate=False) if name in mapped}
    sharing: dict[str, list[str]] = {}
    for name, p in model.named_parameters(remove_duplicate=False):
        if name not in mapped and id(p) in source:
            sharing.setdefault(source[id(p)], []).append(name)
    return sharing


def _tied_source(found: list[_Found], entry: Entry) -> _Found | None:
    for item in found:
        if item.entry.ours[0] == entry.tied_to and item.names is not None:
            return item
    return None


def _stands_for_source(found: list[_Found], entry: Entry) -> bool:
    """Whether a tensor tied to this one is stored in its place."""
    return any(item.entry.tied_to == entry.ours[0] and item.names is not None for item in found)


def _tie(model: Model, found: list[_Found]) -> None:
    """Where the config ties two tensors and the file holds one, or the same twice: make them one."""
    for item in found:
        entry = item.entry
        if entry.tied_to is None:
            continue
        name, source = entry.ours[0], _parameter(model, entry.tied_to)
        own = _parameter(model, name)
        if own is source:
            continue
        if source.is_meta:
            _assign(model, entry.tied_to, own)
        elif item.names is None or torch.equal(own, source):
            _assign(model, name, source)
        else:
            log.warning(
                "The configuration ties %s to the embeddings, but the file holds another matrix for it: "
                "the file's is used.",
                entry.theirs[0],
            )
            if name.startswith("head."):
                model.config.tie_word_embeddings = False  # type: ignore[attr-defined]


def _draw_rest(model: Model, dtype: torch.dtype, device: torch.device) -> None:
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


def _common_dtype(weights: Weights, found: list[_Found], by_name: dict[str, str]) -> torch.dtype:
    """The files' own dtype; where they mix several, the widest (apart from tensors that are wider on purpose)."""
    stored = {weights.dtype(by_name[name]) for item in found if not item.entry.wide for name in item.names or ()}
    return reduce(torch.promote_types, [dtype for dtype in FLOATS if str(dtype).removeprefix("torch.") in stored])


def _parameter(model: nn.Module, name: str) -> nn.Parameter:
    return model.get_parameter(name)


def _absent(model: nn.Module, name: str) -> bool:
    try:
        return model.get_parameter(name) is None
    except AttributeError:
        return True


def _assign(model: nn.Module, name: str, tensor: Tensor) -> None:
    path, _, own = name.rpartition(".")
    learns = tensor.is_floating_point() and _parameter(model, name).requires_grad
    parameter = tensor if isinstance(tensor, nn.Parameter) else nn.Parameter(tensor, requires_grad=learns)
    setattr(model.get_submodule(path), own, parameter)


def _shown(shapes: list[tuple[int, ...]]) -> str:
    return " + ".join("×".join(map(str, shape)) or "a single number" for shape in shapes)
