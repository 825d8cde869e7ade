"""Which tensors of a checkpoint are which of a model, and what is wrong where they do not fit."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable
from dataclasses import dataclass

from clearhead.errors import CheckpointError, ConfigError
from clearhead.hub.weights import FLOATS, Weights, first_few
from clearhead.models import FAMILIES, Config, Family, Model
from clearhead.models.checkpoint import Entry
from clearhead.models.heads import FeaturesHead

log = logging.getLogger("clearhead")
_FEW_BITS = re.compile(r".*\.(qweight|qzeros|g_idx|SCB|absmax|quant_map|quant_state\..*)")  # GPTQ, AWQ, bitsandbytes
_OTHER_BODIES = set(FAMILIES) - {"transformer"}
_NAMED = 24  # how many tensors a warning lists


@dataclass
class Match:
    """Where the tensors of one entry are in the checkpoint."""

    entry: Entry
    names: list[str] | None  # published; None where the checkpoint lacks one of them
    stored: list[str]  # the same as the file spells them

    @property
    def of_head(self) -> bool:
        return not _of_body(self.entry)


def _of_body(entry: Entry) -> bool:
    return not entry.ours[0].startswith("head.")


class Matching:
    """The entries of a family's map for one task, each with its tensors in the file."""

    def __init__(self, family: Family, config: Config, task: str, names: Iterable[str]) -> None:
        self.family, self.config, self.task = family, config, task
        self.map = family.checkpoint_map(config, task)
        names = list(names)
        self.wrapper = self._wrapper(names)
        # published name → the file's spelling
        self.stored_names = {self.map.spelt_now(name.removeprefix(self.wrapper)): name for name in names}
        prefix = self.map.prefix
        self.with_prefix = bool(prefix) and any(name.startswith(prefix) for name in self.stored_names)
        self.matches = [self._match(entry) for entry in self.map.entries]

    def _wrapper(self, names: list[str]) -> str:
        """What stands before every name of the body where the model was saved as a part of something else, such as
        "module." of DataParallel. Empty where nothing does, where there is more than one such part, or where it is
        another family's ("roberta." in what calls itself a BERT): that computes something else."""
        body = [e.theirs[0] for e in self.map.entries if _of_body(e) and not e.optional and not e.tied_to]
        last = body[-1] if body else ""  # the name with most to it: of the last layer, or the norm after it
        for wanted in (self.map.prefix + last, last):
            ends = [name for name in map(self.map.spelt_now, names) if f".{name}".endswith(f".{wanted}")]
            if wanted in ends or not last:
                return ""
            if ends:
                wrapper = ends[0].removesuffix(wanted)
                return wrapper if len(ends) == 1 and not _OTHER_BODIES & set(wrapper.split(".")) else ""
        return ""

    def _match(self, entry: Entry) -> Match:
        for theirs in ((name,) for name in entry.or_else) if entry.or_else else (entry.theirs,):
            names = [self.map.published_name(name, entry, self.with_prefix) for name in theirs]
            if all(name in self.stored_names for name in names):
                return Match(entry, names, [self.stored_names[name] for name in names])
        return Match(entry, None, [])

    def other_spellings(self, match: Match) -> list[str]:
        """The file's names of tensors that should be the one that was found."""
        names = (self.map.published_name(name, match.entry, self.with_prefix) for name in match.entry.or_else)
        stored = [self.stored_names[name] for name in names if name in self.stored_names]
        return [name for name in stored if name not in match.stored] if match.entry.one_tensor else []

    @property
    def used(self) -> list[str]:
        """The file's names of the tensors that were found."""
        return [name for match in self.matches if match.names is not None for name in match.stored]

    def absent(self) -> list[Match]:
        """What a model cannot be without: neither stored, nor tied to something that is."""
        return [m for m in self.matches if m.names is None and not m.entry.optional and not self._has_twin(m.entry)]

    def _has_twin(self, entry: Entry) -> bool:
        """Whether a tensor that is tied to this one, or that this one is tied to, is stored in its place."""
        first = entry.ours[0]
        return any(
            m.names is not None and (m.entry.ours[0] == entry.tied_to or m.entry.tied_to == first) for m in self.matches
        )

    def drop_missing_pooler(self, model: Model) -> None:
        """A checkpoint without a pooler still has features; a random pooler would only mislead."""
        if isinstance(model.head, FeaturesHead) and model.head.pooler is not None:
            of_pooler = [match for match in self.matches if match.entry.ours[0].startswith("head.pooler")]
            if of_pooler and all(match.names is None for match in of_pooler):
                model.head.pooler = None
                for match in of_pooler:
                    self.matches.remove(match)

    def drop_misshapen_head(self, model: Model, weights: Weights) -> None:
        """What the head has in another shape counts as absent."""
        for match in self.matches:
            if match.of_head and match.entry.tied_to is None and match.names and not fits(model, match, weights):
                match.names = None

    def published(self, matches: list[Match]) -> list[str]:
        return [self.map.published_name(name, m.entry, self.with_prefix) for m in matches for name in m.entry.theirs]

    def unmatched(self) -> tuple[list[str], list[str], list[str]]:
        """Tensors of the file that no entry asks for: those of another head of the family, those of a head that the
        family does not have, and those that stand where this model's own tensors do."""
        asked = {name for match in self.matches for name in match.names or ()}
        for match in self.matches:
            for name in (*match.entry.or_else, *match.entry.copies):
                asked |= {self.map.published_name(name, match.entry, with_prefix) for with_prefix in (True, False)}
        left = [name for name in self.stored_names if name not in asked and not self.map.is_skipped(name)]
        known: set[str] = set()
        for task in self.family.architectures if left else ():
            known |= self.family.checkpoint_map(self.config, task).all_names()
        strange = [name for name in left if name not in known]
        own = [name for name in strange if self._is_outside(name)]
        return [name for name in left if name in known], own, [name for name in strange if name not in own]

    def _is_outside(self, name: str) -> bool:
        """Whether a tensor stands apart from the body, and in no module that the model has."""
        modules = {used.rpartition(".")[0] for match in self.matches for used in match.names or ()}
        if name.rpartition(".")[0] in modules - {""}:
            return False
        if self.with_prefix:
            return not name.startswith(self.map.prefix)
        body = {used.partition(".")[0] for m in self.matches if not m.of_head for used in m.names or ()}
        return name.partition(".")[0] not in body


def check(
    matching: Matching, model: Model, weights: Weights, *, new_head: bool, strict: bool = False, guessed: bool = False
) -> None:
    """Refuse a file that lacks something, has something that belongs nowhere, or has it in another shape or type;
    name what is left unread.

    new_head   what the head lacks will be drawn afresh
    strict     refuse the tensors of somebody's own head, too
    guessed    the task was guessed: whatever is left unread is worth a warning
    """
    absent = matching.absent()
    fresh = [m for m in absent if new_head and m.of_head]
    missing = matching.published([m for m in absent if m not in fresh])
    missing_head = bool(missing) and all(m.of_head for m in absent)
    floats = {str(dtype).removeprefix("torch.") for dtype in FLOATS}
    not_floating = [f"{name} ({weights.dtype(name)})" for name in matching.used if weights.dtype(name) not in floats]
    found = [m for m in matching.matches if m.names is not None]
    shapes = [_mismatch(model, m, weights) for m in found if not fits(model, m, weights)]
    other_head, own_head, extra = matching.unmatched()
    if strict:
        extra, own_head = [*extra, *own_head], []

    problems = []
    if missing:
        problems.append(f"{len(missing)} tensors are missing: {first_few(missing)}")
    if extra:
        problems.append(f"{len(extra)} tensors do not belong to this model: {first_few(extra)}")
    if matching.wrapper and strict:
        problems.append(f"the names of its tensors begin with {matching.wrapper!r}")
    if not_floating:
        problems.append(f"only floating-point weights can be used as they are, not {first_few(not_floating)}")
    if shapes:
        problems.append("shapes differ: " + "; ".join(shapes[:6]) + (f"; {len(shapes) - 6} more" * (len(shapes) > 6)))
    if problems:
        raise CheckpointError(
            f"The weights do not fit their configuration ({model.family.title}, {model.task}): "
            + ". ".join(problems)
            + f". {_advice(matching, body_is_whole=missing_head and len(problems) == 1)}"
        )
    if matching.wrapper:
        log.warning("The tensors are read without %r, which their names begin with.", matching.wrapper)
    if own_head or (guessed and other_head):
        log.warning(
            "These tensors belong to a head that was not loaded (%s was), and are left unread: %s.",
            model.task,
            first_few([*own_head, *(other_head if guessed else ())], _NAMED),
        )
    elif other_head:
        log.info("Not needed for %s, left unread: %s", model.task, first_few(other_head))
    if fresh:
        log.warning(
            "The checkpoint has no head for %s: %s start from random values. Train before you rely on them.",
            model.task,
            first_few(matching.published(fresh)),
        )


def check_layers(config: Config, tensors: int) -> None:
    """A number of layers that cannot be right is refused before so many are built."""
    # whatever is called layers, of an encoder or a decoder, and ALBERT's groups of them: blocks that will be built
    parts = [config, *(part for part in vars(config).values() if isinstance(part, Config))]
    counts = [n for part in parts for name, n in vars(part).items() if name.endswith(("layers", "group_num"))]
    layers = max((n for n in counts if isinstance(n, int)), default=0)
    if layers > max(1000, tensors):
        raise ConfigError(
            f"The configuration asks for {layers:,} layers, but the weights hold {tensors:,} "
            "tensors in all. Do config.json and the weight file belong together?"
        )


def _advice(matching: Matching, body_is_whole: bool) -> str:
    """Why weights may not fit, as far as it shows, and what to do."""
    unknown = matching.config.unknown
    if any(_FEW_BITS.fullmatch(name) for name in matching.stored_names):
        return (
            "They are stored in few bits (GPTQ, AWQ or bitsandbytes), which Clearhead does not read. Load the "
            'full-precision original, and round it here with quantize="int8" or "int4" if it is too large.'
        )
    if body_is_whole and "features" in matching.family.architectures:
        return 'Only the head is not there: task="features" loads the rest, and task= another head that is.'
    if unknown:
        return f"config.json has options that Clearhead does not know, which may be why: {first_few(unknown)}."
    return "Do config.json and the weight file belong together?"


def fits(model: Model, match: Match, weights: Weights) -> bool:
    """Whether the tensors of the file, one after the other, are as large as those of the model."""
    expected = [tuple(model.get_parameter(name).shape) for name in match.entry.ours]
    stored = [match.entry.shape_here(weights.shape(name)) for name in match.stored]
    rows = sum(shape[0] for shape in expected if shape)
    return sum(s[0] for s in stored if s) == rows and {s[1:] for s in stored} == {s[1:] for s in expected}


def _mismatch(model: Model, match: Match, weights: Weights) -> str:
    stored = _format_shapes([weights.shape(name) for name in match.stored])
    ours = [tuple(model.get_parameter(name).shape) for name in match.entry.ours]
    needed = _format_shapes([match.entry.shape_there(shape) for shape in ours])
    return f"{' + '.join(match.names or ())}: the file has {stored}, the configuration needs {needed}"


def _format_shapes(shapes: list[tuple[int, ...]]) -> str:
    return " + ".join("×".join(map(str, shape)) or "a single number" for shape in shapes)
