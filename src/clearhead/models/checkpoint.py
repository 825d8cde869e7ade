"""Checkpoints are a reversible map: each family declares once how its tensors correspond to the published names.

An `Entry` ties some of our tensors to some published ones: rename (one to one), merge (published q, k, v into one
of ours), split (the other way), transposed or not. Loading reads the list one way, saving the other.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor


@dataclass(frozen=True)
class Entry:
    """`theirs`, laid end to end along the first axis (after transposing), are `ours` laid end to end.

    in_body     the published name gets the family's prefix ("bert.", "transformer.") under a task head
    tied_to     our name of the tensor that this one equals when embeddings are tied; then it need not be stored
    flat        the published tensor has a leading axis of one that ours lacks (BART's final_logits_bias)
    scalar      the published tensor is a single number, ours a row of one
    heads       the published tensor's last axis is split in two: this many heads, and the size of one (XLNet)
    or_else     other published names to read it from, best first; `copies` are also written when saving
    one_tensor  those names stand for one tensor: a file in which they differ is refused
    optional    files may lack it: it then has the family's first value
    wide        stays in fp32 where the rest of the model is float16, whose range it would leave (T5)
    """

    ours: tuple[str, ...]
    theirs: tuple[str, ...]
    transpose: bool = False
    flat: bool = False
    scalar: bool = False
    heads: int | None = None
    in_body: bool = True
    tied_to: str | None = None
    or_else: tuple[str, ...] = ()
    copies: tuple[str, ...] = ()
    one_tensor: bool = False
    optional: bool = False
    wide: bool = False

    def to_ours(self, tensors: list[Tensor], sizes: list[int]) -> list[Tensor]:
        tensors = [t.flatten(-2) if self.heads else t.reshape(1) if self.scalar else t for t in tensors]
        tensors = [t.t() if self.transpose else t[0] if self.flat else t for t in tensors]
        if len(tensors) == len(sizes) == 1:
            return tensors
        joined = tensors[0] if len(tensors) == 1 else torch.cat(tensors)
        return [joined] if len(sizes) == 1 else list(joined.split(sizes))

    def to_theirs(self, tensors: list[Tensor]) -> list[Tensor]:
        joined = tensors[0] if len(tensors) == 1 else torch.cat(tensors)
        assert joined.shape[0] % len(self.theirs) == 0, "published parts of one entry have equal sizes"
        parts = [joined] if len(self.theirs) == 1 else list(joined.chunk(len(self.theirs)))
        parts = [p.t() if self.transpose else p[None] if self.flat else p for p in parts]
        return [p.unflatten(-1, (self.heads, -1)) if self.heads else p.reshape(()) if self.scalar else p for p in parts]

    def shape_here(self, published: tuple[int, ...]) -> tuple[int, ...]:
        """The shape our tensor has, given the published one's."""
        if self.scalar:
            return (1,) if published == () else published
        if self.heads:
            if len(published) < 3 or published[-2] != self.heads:
                return published  # it cannot fit, and is reported as it is
            published = (*published[:-2], published[-2] * published[-1])
        return tuple(reversed(published)) if self.transpose else published[1:] if self.flat else published

    def shape_there(self, ours: tuple[int, ...]) -> tuple[int, ...]:
        if self.scalar:
            return ()
        there = tuple(reversed(ours)) if self.transpose else (1, *ours) if self.flat else ours
        return (*there[:-1], self.heads, there[-1] // self.heads) if self.heads else there


def one(ours: str, theirs: str, *, transpose: bool = False, in_body: bool = True) -> Entry:
    return Entry((ours,), (theirs,), transpose=transpose, in_body=in_body)


def linear(
    ours: str, theirs: str, *, bias: bool = True, transpose: bool = False, in_body: bool = True
) -> Iterator[Entry]:
    """The weight and bias of a linear layer or norm. `transpose` turns weights stored as (in, out)."""
    yield one(f"{ours}.weight", f"{theirs}.weight", transpose=transpose, in_body=in_body)
    if bias:
        yield one(f"{ours}.bias", f"{theirs}.bias", in_body=in_body)


@dataclass(frozen=True)
class CheckpointMap:
    """All entries of one model, the prefix of its body, and names that old files carry."""

    entries: tuple[Entry, ...]
    prefix: str = ""
    # the bare model is written with the prefix, too
    always_prefixed: bool = False
    # (pattern, replacement): spellings of old files, such as LayerNorm.gamma
    legacy: tuple[tuple[str, str], ...] = ()
    # tensors that are no weights (position counters, causal masks) and are skipped
    skipped: tuple[str, ...] = ()
    # those among them that a reader of the file asks for: written when saving
    computed: Mapping[str, Callable[[], Tensor]] = field(default_factory=dict)

    def spelt_now(self, name: str) -> str:
        for pattern, new in self.legacy:
            name = re.sub(pattern, new, name)
        return name

    def is_skipped(self, name: str) -> bool:
        return any(re.fullmatch(pattern, name) for pattern in self.skipped)

    def published_name(self, name: str, entry: Entry, with_prefix: bool) -> str:
        return self.prefix + name if with_prefix and entry.in_body else name

    def all_names(self) -> set[str]:
        """Every published name, with and without the prefix."""
        names = set()
        for entry in self.entries:
            for name in (*entry.theirs, *entry.or_else, *entry.copies):
                names |= {name, self.published_name(name, entry, True)}
        return names


def renamed(entries: Iterable[Entry], *spellings: tuple[str, str]) -> Iterator[Entry]:
    """Another family's entries under the names they have here: (pattern, replacement), one after the other."""

    def here(names: tuple[str, ...]) -> tuple[str, ...]:
        for pattern, new in spellings:
            names = tuple(re.sub(pattern, new, name) for name in names)
        return names

    for entry in entries:
        yield replace(entry, theirs=here(entry.theirs), or_else=here(entry.or_else), copies=here(entry.copies))


def layers(count: int, each: Iterable[Entry]) -> Iterator[Entry]:
    """Repeat entries for every layer: `{n}` in a name stands for its number."""
    each = list(each)
    for n in range(count):
        for entry in each:

            def numbered(names: tuple[str, ...], n: int = n) -> tuple[str, ...]:
                return tuple(name.replace("{n}", str(n)) for name in names)

            yield replace(
                entry,
                ours=numbered(entry.ours),
                theirs=numbered(entry.theirs),
                tied_to=entry.tied_to and entry.tied_to.replace("{n}", str(n)),
                or_else=numbered(entry.or_else),
                copies=numbered(entry.copies),
            )


def spelt_map(
    model: Any,
    spellings: Iterable[tuple[str, str]],
    together: Mapping[str, str] | None = None,
    legacy: tuple[tuple[str, str], ...] = (),
) -> CheckpointMap:
    """The map of a model whose published names follow from ours: (pattern, replacement), one after the other.

    together   part of a name -> the part that stands for its partner: the two are one tensor in the file, in this order
    """
    spellings, together = list(spellings), together or {}
    entries = []
    for name, _ in model.named_parameters():
        if any(partner in name for partner in together.values()):
            continue
        ours = (name, *(name.replace(part, partner) for part, partner in together.items() if part in name))
        published = name
        for pattern, new in spellings:
            published = re.sub(pattern, new, published)
        entries.append(Entry(ours, (published,)))
    return CheckpointMap(tuple(entries), legacy=legacy)


def own_names(build: Callable[[Any, str], Any]) -> Callable[[Any, str], CheckpointMap]:
    """The map of a family that is published under our own names: what a model stores is what it is called here."""

    def checkpoint_map(config: Any, task: str) -> CheckpointMap:
        with torch.device("meta"):
            model = build(config, task)
        model.tie_weights()
        names = sorted((name for name, _ in model.named_parameters(remove_duplicate=False)), key=_is_head)
        first: dict[int, str] = {}
        entries = []
        for name in names:
            owner = first.setdefault(id(model.get_parameter(name)), name)
            entries.append(Entry((name,), (name,), tied_to=None if owner == name else owner))
        return CheckpointMap(tuple(entries))

    return checkpoint_map


def _is_head(name: str) -> bool:
    """A tied output is known by the embedding's name."""
    return name.startswith("head.")
