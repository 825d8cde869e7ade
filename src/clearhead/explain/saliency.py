"""Attribution (saliency): how much each unit of an input, and of the answer so far, mattered for what a model says.

gradient-x-input       gradient of the output's logit, times the token's vector, elementwise; the L2 norm of that
gradient-norm          the L2 norm of the gradient alone
integrated-gradients   the gradient's average on the way from a neutral vector to the token's, times their difference
occlusion              how the logit changes when the token's vector is replaced by the neutral one

The neutral vector is that of the mask token, else of the unknown, padding or end token, as the tokenizer has them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from torch import Tensor

from clearhead.errors import InputError, did_you_mean
from clearhead.explain.attribution import Attributions, Explained, gradient, integrated_gradients, occlusion
from clearhead.explain.capabilities import has_outputs_to_attribute, reads_one_input
from clearhead.explain.continuation import continued
from clearhead.explain.finding import Finding
from clearhead.explain.indices import Indices, checked_count, checked_indices
from clearhead.explain.inference import eval_mode
from clearhead.explain.question import Question
from clearhead.explain.settings import NEW_TOKENS, IndicesSetting, Setting, chosen_word
from clearhead.explain.word_choice import token_or_label, vocabulary_size
from clearhead.messages import say
from clearhead.models.model import Model
from clearhead.pipeline import Pipeline
from clearhead.text.units import display_texts, token_id
from clearhead.units import ShownPicture, Unit

Method = Literal["gradient-x-input", "gradient-norm", "integrated-gradients", "occlusion"]
METHODS: tuple[Method, ...] = ("gradient-x-input", "gradient-norm", "integrated-gradients", "occlusion")
Choice = str | int


@dataclass(frozen=True)
class ExplainedOutput:
    """What is explained.

    text, id      a token, or a label
    position      where it stands in the tokens; None for a label of the whole text
    probability   what the model gives it; None where its outputs are no choice among several
    logit         its score, or how far it lies above the score of `against`: the number that is explained
    against       the token or label it is compared with
    """

    text: str
    id: int
    position: int | None
    probability: float | None
    logit: float
    against: str | None = None


@dataclass(frozen=True, repr=False, eq=False)
class Saliency(Finding):
    """
    tokens          everything that could matter: what was read, then what was written
    source          how many of them an encoder has read; the decoder reads the others. 0 where there is one stack
    scores          (outputs, tokens): shares that sum to one; nan where a token came too late to matter
    contributions   (outputs, tokens): what each token adds to the logit, or takes from it; None for a norm
    unexplained     of integrated gradients, (outputs): the change of the logit that the contributions do not add up to
    picture         what the tokens are patches of, where they are
    """

    kind: ClassVar[str] = "saliency"

    model: str
    method: Method
    tokens: Sequence[Unit]
    source: int
    outputs: list[ExplainedOutput]
    scores: np.ndarray
    contributions: np.ndarray | None
    unexplained: np.ndarray | None
    picture: ShownPicture | None = None

    def table(self) -> Iterator[Iterable[Any]]:
        yield ["output", "against", "probability", "position", "token", "share", "contribution"]
        for n, output in enumerate(self.outputs):
            for i, token in enumerate(self.tokens):
                if np.isfinite(self.scores[n, i]):
                    signed = "" if self.contributions is None else float(self.contributions[n, i])
                    yield [output.text, output.against or "", output.probability, i, token.text,
                           float(self.scores[n, i]), signed]  # fmt: skip


def saliency(
    pipe: Pipeline,
    text: str,
    *,
    method: Method = "gradient-x-input",
    max_new_tokens: int | None = None,
    outputs: Indices = None,
    against: Choice | Sequence[Choice] | None = None,
    target: Choice | Sequence[Choice] | None = None,
    pair: str | None = None,
    steps: int = 32,
) -> Saliency:
    """How much each token mattered for what the model says.

    A model that writes goes on with the text (or answers it), and every new token is explained. A masked model's
    guess for each hidden word is, and a classifier's label.

    max_new_tokens   how many tokens to write; 0 explains those of the text itself
    outputs          which positions to explain instead: of the text and what was written (of an encoder–decoder, of
                     what the decoder reads and writes), or of the text of a masked model
    target           what it is made to say: a text; for masked models a word (or one for each place); a label
    against          why this and not that: a token, or one for each output; or a label
    pair             the second text, for models that read two
    steps            how many points of the way integrated gradients looks at
    """
    if method not in METHODS:
        near = did_you_mean(str(method), METHODS)
        raise InputError(say("explain.no_method", method=repr(method), near=near, known=METHODS))
    checked_count("steps", steps)
    if method != "occlusion" and pipe.model.quantized:
        raise InputError(say("explain.no_gradients", weights=pipe.model.quantized))
    with eval_mode(pipe.model):
        explained = _explained(pipe, text, pair, target, against, outputs, max_new_tokens)
        if method == "occlusion":
            result = occlusion(explained)
        elif method == "integrated-gradients":
            result = integrated_gradients(explained, steps)
        else:
            result = gradient(explained, times_input=method == "gradient-x-input")
    total = np.nansum(result.strength, axis=1, keepdims=True)
    scores = np.divide(result.strength, total, out=result.strength * 0, where=total > 0)
    return Saliency(
        pipe.name, method, explained.units, explained.source, _outputs(explained, result), scores,
        result.contributions, result.unexplained, pipe.shown(text),
    )  # fmt: skip


def _outputs(explained: Explained, result: Attributions) -> list[ExplainedOutput]:
    count = len(explained.ids)
    names, others = explained.names(explained.ids), explained.others
    rivals = [None] * count if others is None else explained.names(others)
    probabilities = [None] * count if explained.activation is None else result.probabilities.tolist()
    rows = zip(names, explained.ids, explained.positions, probabilities, result.logits.tolist(), rivals, strict=True)
    return [ExplainedOutput(*row) for row in rows]


# ---- what is explained


def _explained(
    pipe: Pipeline,
    text: str,
    pair: str | None,
    target: Choice | Sequence[Choice] | None,
    against: Choice | Sequence[Choice] | None,
    outputs: Indices,
    max_new_tokens: int | None,
) -> Explained:
    model, words = pipe.model, pipe.model.language_head is not None
    writes = model.can_generate
    if writes and target is not None and not isinstance(target, str):
        raise InputError(say("explain.target_is_a_text", value=repr(target)))
    written = continued(pipe, text, pair, target if writes else None, max_new_tokens)  # type: ignore[arg-type]
    reading, source = written.reading, len(written.reading.units) if written.reading.target else 0
    rows: list[int] | None
    positions: Sequence[int | None]
    if writes:
        chosen = _written(outputs, written.begin, len(reading.outputs))
        rows, positions = [n - 1 for n in chosen], [source + n for n in chosen]
    elif words or model.head.answers == "token-labels":
        rows = _places_to_fill(pipe, reading.outputs, outputs)
        positions = list(rows)
    elif model.head.answers == "label":
        if outputs is not None:
            raise InputError(say("explain.one_label_for_all"))
        rows, positions = None, [None]
    else:
        raise InputError(say("explain.nothing_to_attribute", task=model.task))
    if writes:
        ids = [reading.outputs[n].id for n in chosen]
    elif target is not None:
        ids = _choices(pipe, "target", target, len(positions))
    else:
        with torch.no_grad():
            logits = model(**reading.inputs).logits[0]  # (time, classes) or (labels,)
        ids = (logits if rows is None else logits[rows]).argmax(-1).reshape(-1).tolist()
    return Explained(
        model, reading.inputs, [*reading.units, *reading.target], source, positions, rows, ids,
        None if against is None else _choices(pipe, "against", against, len(positions)),
        partial(_names, pipe), neutral_vectors(pipe), _activation(model),
    )  # fmt: skip


def _names(pipe: Pipeline, ids: list[int]) -> list[str]:
    if pipe.model.language_head is not None:
        return display_texts(pipe.tokenizer.target, ids)
    return [pipe.model.config.id2label[n] for n in ids]


def _activation(model: Model) -> Literal["softmax", "sigmoid"] | None:
    config: Any = model.config
    if model.language_head is not None:
        return "softmax"
    if model.head.answers == "label" and (config.num_labels == 1 or config.problem_type == "regression"):
        return None
    return "sigmoid" if config.problem_type == "multi_label_classification" else "softmax"


def _written(outputs: Indices, begin: int, length: int) -> list[int]:
    """Which of the tokens are explained: those asked for, else those written, else all that have one before them."""
    if outputs is not None:
        chosen = sorted(checked_indices("position", outputs, length, say("explain.there_are_units", count=length)))
        if chosen[0] == 0:
            raise InputError(say("explain.nothing_before"))
        return chosen
    chosen = list(range(begin if begin < length else 1, length))
    if not chosen:
        raise InputError(say("explain.no_token_to_explain"))
    return chosen


def _places_to_fill(pipe: Pipeline, units: Sequence[Unit], outputs: Indices) -> list[int]:
    if outputs is not None:
        owner = say("explain.there_are_units", count=len(units))
        return sorted(checked_indices("position", outputs, len(units), owner))
    if pipe.model.task == "permutation-lm":
        raise InputError(say("explain.words_in_a_second_stream", family=pipe.model.family.title))
    if pipe.model.language_head is None:
        return [n for n, unit in enumerate(units) if not unit.special] or [0]
    mask = pipe.tokenizer.mask_token_id
    masks = [n for n, unit in enumerate(units) if getattr(unit, "id", None) == mask]
    if not masks:
        raise InputError(say("explain.no_mask", mask=pipe.tokenizer.mask_token or "<mask>"))
    return masks


def _choices(pipe: Pipeline, name: str, chosen: Choice | Sequence[Choice], count: int) -> list[int]:
    """One id for each output, from one for all of them or one for each."""
    listed = [chosen] * count if isinstance(chosen, str | int) else list(chosen)
    if len(listed) != count:
        raise InputError(say("explain.entries_for_outputs", name=name, count=len(listed), outputs=count))
    if pipe.model.language_head is not None:
        return [token_id(pipe.tokenizer.target, choice, vocabulary_size(pipe)) for choice in listed]
    labels = pipe.model.config.id2label
    by_name = {label: n for n, label in labels.items()}
    ids = []
    for choice in listed:
        if choice in by_name:
            ids.append(by_name[choice])
        elif isinstance(choice, int) and not isinstance(choice, bool) and choice in labels:
            ids.append(choice)
        else:
            near = did_you_mean(str(choice), by_name)
            raise InputError(say("explain.no_label", label=repr(choice), known=list(by_name), near=near))
    return ids


def neutral_vectors(pipe: Pipeline) -> list[Tensor]:
    """For each stack the vector of a token that says nothing; zero where there is none, or no token is read."""
    baselines = []
    for name, stack in pipe.model.stacks.items():
        if not stack.embed.reads_tokens:
            baselines.append(torch.zeros((), device=pipe.model.device))
            continue
        embed = stack.token_embedder
        tokenizer = pipe.tokenizer.target if name == "decoder" else pipe.tokenizer
        neutral = (tokenizer.mask_token_id, tokenizer.unk_token_id, tokenizer.pad_token_id, tokenizer.eos_token_id)
        known = [n for n in neutral if n is not None and n < embed.tokens.num_embeddings]
        with torch.no_grad():
            token = torch.tensor([[known[0] if known else 0]], device=pipe.model.device)
            vector = embed.tokens(token)[0, 0] * embed.scale
        baselines.append(vector if known else torch.zeros_like(vector))
    return baselines


# ---- as a question


def _answer(
    pipe: Pipeline, text: str, second: str | None, target: str | None, against: str | None, **values: Any
) -> Saliency:
    wanted = target if pipe.model.can_generate else token_or_label(pipe, target, text)  # a text, or a word or label
    rival = token_or_label(pipe, against, text)
    return saliency(pipe, text, pair=second, target=wanted, against=rival, **values)


QUESTION = Question(
    name="saliency", kind="saliency", group="why", answer=_answer, checks=(reads_one_input, has_outputs_to_attribute),
    second="pair",
    params=(
        Setting(name="method", key="saliency.method", type=Method, default=METHODS[0]),
        replace(NEW_TOKENS, key="saliency.max_new_tokens"),
        IndicesSetting(name="outputs", key="saliency.outputs"),
        Setting(name="target", key="saliency.target", type=str),
        chosen_word("saliency.against", "against"),
        Setting(name="steps", key="saliency.steps", type=int, default=32, least=1, most=1024),
    ),
)  # fmt: skip
