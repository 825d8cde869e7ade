"""What a checkpoint is where its config.json does not say: its family and its task, by its keys and tensors."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from clearhead import models
from clearhead.errors import ClearheadError
from clearhead.hub.matching import Matching, check_layers, fits
from clearhead.hub.weights import Weights
from clearhead.models import Config, Family
from clearhead.models.config_keys import is_inert

# the first of several with the same keys and tensors: what grew from it computes the same, or is told apart
_FIRST = ("bert", "roberta", "gpt2", "t5")
_LEAST = 3  # how many of a family's options a file has at least


def guess_family(raw: dict[str, Any], architecture: str | None, names: Iterable[str]) -> Family | None:
    """The family of a file without a model_type, as before 2020: that of the class it names, or else the one whose
    tensors these are, or, where there are none to see, the one that knows its keys. None: there is no telling.

    names   of the tensors, where there are weights
    """
    names = list(names)
    families = [family for family in models.families() if not family.own_format]
    for family in families:
        if architecture is not None and family.task_of(architecture) is not None:
            return family
    scores = {family.name: _score(family, raw, names) for family in families}
    best = max(families, key=lambda family: scores[family.name])  # the first of equals
    equals = [name for name, score in scores.items() if score == scores[best.name]]
    if not any(scores[best.name]) or (len(equals) > 1 and best.name not in _FIRST):
        return None
    return models.family("roberta") if best.name == "bert" and _is_roberta(raw) else best


def _score(family: Family, raw: dict[str, Any], names: list[str]) -> tuple[bool, int]:
    """(whether the body's tensors are all there, and no more; how many more keys it knows than not)"""
    others = [key for key in raw if family.config.field_of(key) is None]
    unknown = [key for key in others if key not in family.config.inert and not is_inert(key)]
    known = len(raw) - len(others)
    if known < _LEAST:
        return False, 0
    try:
        config = family.config.from_dict(raw, others)
        check_layers(config, len(names))
    except ClearheadError:  # another family's sizes
        return False, 0
    fitting = False
    if names:
        bare = "features" if "features" in family.architectures else family.default_task
        matching = Matching(family, config, bare, names)
        fitting = not _lacks(matching) and not matching.unmatched()[2]
    return fitting, max(0, known - len(unknown))


def _is_roberta(raw: dict[str, Any]) -> bool:
    """Its keys and bare tensors are BERT's, but its positions begin after the padding token's number: the table has
    two rows more than a round number. And it has one segment, and another epsilon."""
    positions = raw.get("max_position_embeddings")
    two_more = isinstance(positions, int) and positions > 2 and (positions - 2).bit_count() == 1
    one_segment = raw.get("type_vocab_size") == 1 and raw.get("layer_norm_eps") == 1e-5
    return two_more or one_segment or raw.get("pad_token_id") == 1


def guess_task(family: Family, config: Config, weights: Weights, prefer_default: bool) -> str:
    """The task whose head the file holds; the bare model where it holds none of the family's.

    prefer_default   take the family's own task if its head is there, or needs no tensors and no other head shows
    """
    bare = "features" if "features" in family.architectures else family.default_task
    body = Matching(family, config, bare, weights)
    other_head, own_head, _ = body.unmatched()
    default = Matching(family, config, family.default_task, weights)
    stored_head = any(m.of_head and m.names for m in default.matches)
    if prefer_default and (stored_head or not other_head) and _fits(default, weights):
        return family.default_task
    # a head that is tied to the embeddings stores nothing: believe in it where a head was saved and no other shows
    tied_head = (body.with_prefix or not body.map.prefix) and not other_head and not own_head
    layers = {name for m in body.matches if not m.of_head and m.names for name in m.stored}
    body_names = set() if _lacks(body) else set(body.used)  # of an encoder or a decoder alone, all tensors speak
    best, most_matched, seen = bare, 0, []
    for task in _in_order(family, config):
        matching = Matching(family, config, task, weights)
        of_head = len(set(matching.used) - body_names)
        if matching.used in seen or _lacks(matching) or layers - set(matching.used):
            continue  # another has the same tensors and comes first; or it would leave some layers unread
        seen.append(matching.used)
        shows = of_head > most_matched or (tied_head and not most_matched and task == family.default_task)
        if shows and _fits(matching, weights):
            best, most_matched = task, of_head
    return best


def _in_order(family: Family, config: Config) -> list[str]:
    """Tasks as a family lists them, except that a decoder writes, and labels such as B-PER are of words."""
    first = []
    if getattr(config, "is_decoder", False):
        first.append("causal-lm")
    if any(label.startswith(("B-", "I-")) for label in config.id2label.values()):
        first.append("token-classification")
    return sorted(family.architectures, key=lambda task: task not in first)


def _fits(matching: Matching, weights: Weights) -> bool:
    """Whether the file has all that this task needs, its head in the right shape."""
    if _lacks(matching):
        return False
    try:
        model = matching.family.make(matching.config, matching.task, device="meta")
    except (ClearheadError, RuntimeError):
        return False
    return all(fits(model, m, weights) for m in matching.matches if m.of_head and m.names)


def _lacks(matching: Matching) -> bool:
    """Whether a tensor is missing that this task needs: all but the pooler of the bare model."""
    return any(not (m.of_head and matching.task == "features") for m in matching.absent())
