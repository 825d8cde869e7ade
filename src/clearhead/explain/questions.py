"""Every question that can be asked of a model, in one table: what `clearhead explain` and the studio both offer.

A question has parameters with friendly names, which a command line option and a field of a form share; params.py looks
at every value before it goes on.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from types import SimpleNamespace
from typing import Any, Literal

from clearhead.errors import ClearheadError, InputError, did_you_mean
from clearhead.explain.ablation import ablation
from clearhead.explain.answering import writes
from clearhead.explain.attention import attention
from clearhead.explain.attention_steps import attention_steps
from clearhead.explain.beams import beams
from clearhead.explain.caching import caching
from clearhead.explain.factors import factors
from clearhead.explain.finding import Finding
from clearhead.explain.hidden_states import hidden_states
from clearhead.explain.neurons import need_sklearn, neurons, top_tokens
from clearhead.explain.next_token import next_token
from clearhead.explain.parameters import parameters
from clearhead.explain.params import Param, shown
from clearhead.explain.patching import patching
from clearhead.explain.positions import positions
from clearhead.explain.prediction import prediction
from clearhead.explain.query_key import query_key
from clearhead.explain.reading import at_rest, call
from clearhead.explain.saliency import METHODS, saliency
from clearhead.explain.sampling import sampling
from clearhead.explain.scores import scores_of
from clearhead.explain.similarity import similarity
from clearhead.explain.walk import walk
from clearhead.models.encoder_decoder import EncoderDecoderModel
from clearhead.models.heads import ChoiceHead, TokenHead
from clearhead.pipeline import Pipeline
from clearhead.text.units import token_id

# ---- what a question is


@dataclass(frozen=True)
class Question:
    """
    kind     of the finding that answers it, which is the name of its view
    group    what it stands under in a list
    answer   called with the pipeline, the text, the second text (or None) and the checked values
    checks   each says why a model cannot answer; None if it can
    second   "pair": models that read two texts can be given both; "needed": it is about two texts; "": one text
    text     whether there has to be one
    """

    name: str
    kind: str
    group: str
    title: str
    help: str
    params: tuple[Param, ...]
    answer: Callable[[Pipeline, str, str | None, Any], Finding]
    checks: tuple[Callable[[Pipeline], str | None], ...] = ()
    second: Literal["", "pair", "needed"] = ""
    text: bool = True

    def fits(self, pipe: Pipeline) -> str | None:
        """None, or the reason why this model cannot answer, as a sentence."""
        return next((reason for check in self.checks if (reason := check(pipe)) is not None), None)

    def params_for(self, pipe: Pipeline) -> tuple[Param, ...]:
        """The parameters that mean something to this model."""
        return tuple(param for param in self.params if not param.only or _both(pipe))

    def ask(self, pipe: Pipeline, text: str, /, second: str | None = None, **params: Any) -> Finding:
        """The finding. Whatever is wrong with what was asked is an InputError, before the model runs if possible."""
        values = checked(self, params)
        for name, value in (("text", text), ("second text", second)):
            if value is not None and not isinstance(value, str):
                raise InputError(f"The {name} must be a string, not {type(value).__name__}.")
        second = second if second and second.strip() else None
        if self.text and not (text and text.strip()):
            raise InputError("There is no text to explain. Give at least one word.")
        if second is not None and not self.second:
            raise InputError(f"{self.name} looks at one text: leave the second one out.")
        if second is None and self.second == "needed":
            raise InputError(f"{self.name} is about two texts: give the second one too.")
        if (reason := self.fits(pipe)) is not None:
            raise InputError(reason)
        for param in self.params:
            if param.kind == "model" and isinstance(values[param.name], str):
                raise InputError(f"{param.name} has to be loaded before it is asked: {shown(values[param.name])}.")
        return self.answer(pipe, text, second, SimpleNamespace(**values))

    def to_dict(self) -> dict[str, Any]:
        """All that a form needs to know, as plain values."""
        plain = ("name", "kind", "group", "title", "help", "second", "text")
        return {name: getattr(self, name) for name in plain} | {"params": [asdict(param) for param in self.params]}


def checked(question: Question, given: dict[str, Any]) -> dict[str, Any]:
    """A value for every parameter: what was given, or its default. The one place where values are looked at."""
    known = {param.name: param for param in question.params}
    for name in given:
        if name not in known:
            has = f"it has {', '.join(known)}" if known else "it has none"
            raise InputError(
                f"{question.name} has no parameter {shown(name)}; {has}.{did_you_mean(str(name)[:60], known)}"
            )
    return {name: param.checked(given.get(name)) for name, param in known.items()}


def question(name: str) -> Question:
    """By its name; an unknown one is an error that names those that are near."""
    if not isinstance(name, str) or name not in QUESTIONS:
        near = did_you_mean(str(name)[:60], QUESTIONS)
        raise InputError(f"There is no question {shown(name)}.{near} There are {', '.join(QUESTIONS)}.")
    return QUESTIONS[name]


# ---- what models can do


def _both(pipe: Pipeline) -> bool:
    return isinstance(pipe.model, EncoderDecoderModel)


def _refusal(check: Callable[[], Any]) -> str | None:
    """What a check that raises has to say."""
    try:
        check()
    except ClearheadError as error:
        return str(error)
    return None


def _tokenizes(pipe: Pipeline) -> str | None:
    return _refusal(lambda: pipe.tokenizer)


def _reads(pipe: Pipeline) -> str | None:
    if isinstance(pipe.model.head, ChoiceHead):
        return f"This model is loaded for {pipe.model.task}, which reads several texts at once."
    return _tokenizes(pipe)


def _says_words(pipe: Pipeline) -> str | None:
    if pipe.model.task == "permutation-lm":
        return f"{pipe.model.family.title} guesses words in a stream of its own, which this question does not show."
    if pipe.model.language_head is None:
        return f"This model is loaded for {pipe.model.task}; only a language model says words."
    return None


def _goes_on(pipe: Pipeline) -> str | None:
    return None if writes(pipe) else f"This model is loaded for {pipe.model.task} and does not write."


def _has_chances(pipe: Pipeline) -> str | None:
    refused = _refusal(lambda: scores_of(pipe)) is not None
    return f"This model is loaded for {pipe.model.task}, which gives no chances to compare." if refused else None


def _has_reasons(pipe: Pipeline) -> str | None:
    model = pipe.model
    labels = model.task == "sequence-classification" or (isinstance(model.head, TokenHead) and not _both(pipe))
    return None if labels else _says_words(pipe)


def _answers(pipe: Pipeline) -> str | None:
    model = pipe.model
    if model.task in ("features", "permutation-lm"):
        return f"This model is loaded for {model.task}, which gives vectors and no answers."
    if writes(pipe):
        return "This model writes: ask for its next token instead."
    return None


def _no_memory(pipe: Pipeline) -> str | None:
    if getattr(pipe.model.config, "mem_len", None) and pipe.model.task == "causal-lm":
        return f"{pipe.model.family.title} also looks at what it remembers, which has no tokens to show. See attention."
    return None


def _has_cache(pipe: Pipeline) -> str | None:
    kept = hasattr(pipe.model.config, "mem_len")
    return f"{pipe.model.family.title} keeps a memory of earlier states in place of a cache." if kept else None


def _has_sklearn(pipe: Pipeline) -> str | None:
    return _refusal(lambda: need_sklearn("This question"))


# ---- words that somebody chose


def _token(pipe: Pipeline, said: str, text: str) -> int:
    """The token a person means: a word as it goes on after the text; in double quotes, exactly what stands there."""
    tokenizer, head = pipe.tokenizer.target, pipe.model.language_head
    vocabulary = int(getattr(head and head.output, "out_features", pipe.model.config.vocab_size))
    word = _bare(said)
    if word != said.strip():
        return token_id(tokenizer, word, vocabulary)
    if not text or not text[-1].isspace():
        ids = tokenizer.encode(f" {word}", add_special_tokens=False)
        if len(ids) == 1:
            return ids[0]
    return token_id(tokenizer, word, vocabulary)


def _chosen(pipe: Pipeline, said: str | None, text: str) -> str | int | None:
    """A token, or of a classifier a label."""
    if said is None or pipe.model.language_head is None:
        return said
    return _token(pipe, said, text)


def _bare(said: str) -> str:
    """Without the spaces around it; in double quotes, what stands between them."""
    said = said.strip()
    return said[1:-1] if len(said) > 2 and said[0] == said[-1] == '"' else said


def _several(said: str) -> list[str]:
    """Words with commas between them; one in double quotes may hold a comma."""
    return [part for part in re.findall(r'\s*"[^"]*"\s*|[^,，、]+', said) if part.strip()]


# ---- how each is answered: v has every parameter by its name


def _attention(pipe: Pipeline, text: str, second: str | None, v: Any) -> Finding:
    return attention(pipe, text, second, v.target, v.layers, v.heads, v.words, v.side)


def _query_key(pipe: Pipeline, text: str, second: str | None, v: Any) -> Finding:
    return query_key(pipe, text, second, v.target, v.layer, v.head, v.position, v.side)


def _attention_steps(pipe: Pipeline, text: str, second: str | None, v: Any) -> Finding:
    return attention_steps(pipe, text, second, v.target, v.layer, v.side)


def _ablation(pipe: Pipeline, text: str, second: str | None, v: Any) -> Finding:
    chosen = _chosen(pipe, v.chosen, text)
    return ablation(pipe, text, second, v.target, v.layers, v.heads, v.position, chosen, v.how, v.side, v.k)


def _saliency(pipe: Pipeline, text: str, second: str | None, v: Any) -> Finding:
    said = v.target if _goes_on(pipe) is None else _chosen(pipe, v.target, text)  # a text, or a word or label
    return saliency(
        pipe, text, method=v.method, max_new_tokens=v.max_new_tokens, outputs=v.outputs, target=said, pair=second,
        against=_chosen(pipe, v.against, text), steps=v.steps,
    )  # fmt: skip


def _patching(pipe: Pipeline, text: str, second: str | None, v: Any) -> Finding:
    answer, other = (_chosen(pipe, said, text) for said in (v.chosen, v.against))
    return patching(
        pipe, text, second or "", v.tap, None if v.by == "auto" else v.by, answer, other, v.layers, v.positions,
        v.heads, v.position, target=v.target, side=v.side, top_k=v.k,
    )  # fmt: skip


def _neurons(pipe: Pipeline, text: str, second: str | None, v: Any) -> Finding:
    return neurons(pipe, text, v.layers, top=v.k, clusters=v.clusters, **_heard(second, v))


def _factors(pipe: Pipeline, text: str, second: str | None, v: Any) -> Finding:
    return factors(pipe, text, v.layers, n=v.factors, top=v.k, **_heard(second, v))


def _heard(second: str | None, v: Any) -> dict[str, Any]:
    """What neurons and factors are told alike."""
    side = None if v.side == "auto" else v.side
    return {"seed": v.seed, "side": side, "pair": second, "target": v.target, "max_new_tokens": v.max_new_tokens}


def _top_tokens(pipe: Pipeline, text: str, second: str | None, v: Any) -> Finding:
    texts = _lines(text)
    side: Any = "encoder" if _both(pipe) else None
    neuron = _excited(pipe, texts[0][:200], v.layer, side) if v.neuron is None else v.neuron
    return top_tokens(pipe, texts, v.layer, neuron, top=v.k, around=v.around, side=side)


def _excited(pipe: Pipeline, text: str, layer: int, side: Any) -> int:
    """The neuron of a layer that one word of the text excites most, above what it does at the others."""
    target = "" if side and pipe.model.language_head is None else None  # a decoder that has to be given something
    found = neurons(pipe, text, layer, top=None, side=side, target=target)
    words = [n for n, token in enumerate(found.tokens) if not token.special] or [0]
    fires = found.activations[:, words]  # (neurons, words)
    return found.neurons[int((fires.max(axis=1) - fires.mean(axis=1)).argmax())][1]


def _similarity(pipe: Pipeline, text: str, second: str | None, v: Any) -> Finding:
    if v.other is not None and (reason := _reads(v.other)) is not None:
        raise InputError(reason)
    unbiased = v.unbiased and v.measure == "cka"
    return similarity(pipe, _lines(text), v.other, v.measure, v.layers, v.other_layers, unbiased, v.variance, v.skip)


def _lines(text: str) -> list[str]:
    """The texts of a corpus that was given as one."""
    return [line for line in text.splitlines() if line.strip()]


def _hidden_states(pipe: Pipeline, text: str, second: str | None, v: Any) -> Finding:
    return hidden_states(pipe, text, v.positions, _chosen(pipe, v.chosen, text), v.k, pair=second, target=v.target)


def _comparison(pipe: Pipeline, text: str, second: str | None, v: Any) -> Finding:
    both, target = _both(pipe), v.target
    if both and target is None and v.position is None:
        target = ""  # the first token that would be written
    if v.candidates is None:
        words = _two_likeliest(pipe, text, second, v.position, target)
    else:
        words = [_token(pipe, word, (target or "") if both else text) for word in _several(v.candidates)]
    return hidden_states(pipe, text, v.position, candidates=words, pair=second, target=target)


def _two_likeliest(
    pipe: Pipeline, text: str, second: str | None, position: int | None, target: str | None
) -> list[int]:
    looked = hidden_states(pipe, text, position, top_k=1, pair=second, target=target)
    where = looked.positions[-1 if looked.predicts == "next" else 0]
    with at_rest(pipe.model):
        scores = call(pipe, pipe.read(text, second, target)).logits[0, where]
    found: list[int] = scores.topk(2).indices.tolist()
    return found


def _next_token(pipe: Pipeline, text: str, second: str | None, v: Any) -> Finding:
    return next_token(pipe, _or_none(text), v.k, target=v.target or "")


def _beams(pipe: Pipeline, text: str, second: str | None, v: Any) -> Finding:
    return beams(pipe, _or_none(text), v.num_beams, v.max_new_tokens, length_penalty=v.length_penalty, beside=v.beside)


def _cache(pipe: Pipeline, text: str, second: str | None, v: Any) -> Finding:
    return caching(pipe, text, v.max_new_tokens)


def _prediction(pipe: Pipeline, text: str, second: str | None, v: Any) -> Finding:
    return prediction(pipe, text, second, v.k, None if v.choices is None else [_bare(c) for c in _several(v.choices)])


def _sampling(pipe: Pipeline, text: str, second: str | None, v: Any) -> Finding:
    return sampling(pipe, _or_none(text), v.temperature, v.top_k, v.top_p, seed=v.seed, draws=v.draws, show=v.k)


def _positions(pipe: Pipeline, text: str, second: str | None, v: Any) -> Finding:
    return positions(pipe, v.length, v.layer)


def _parameters(pipe: Pipeline, text: str, second: str | None, v: Any) -> Finding:
    return parameters(v.published or pipe)


def _or_none(text: str) -> str | None:
    """None where there is no text: the model begins one."""
    return text if text and text.strip() else None


def _walk(pipe: Pipeline, text: str, second: str | None, v: Any) -> Finding:
    both = {"side": None if v.side == "auto" else v.side, "target": v.target} if _both(pipe) else {}
    return walk(pipe, text, layer=v.layer, head=v.head, position=v.position, numbers=v.numbers, top_k=v.k, **both)


# ---- the table

LAYER = Param("layer", "int", 0, "Which layer, counted from 0; -1 is the last.")
LAYERS = Param("layers", "layers", None, "Which layers, counted from 0: 3, or 0-2,5. Nothing: all of them.")
HEAD = Param("head", "int", 0, "Which head of the layer, counted from 0.")
HEADS = Param("heads", "layers", None, "Which heads of each layer. Nothing: all of them.")
POSITION = Param("position", "int", None, "Which token, counted from 0; -1 is the last.")
POSITIONS = Param("positions", "layers", None, "Which tokens, counted from 0: 3, or 0-2,5.")
TARGET = Param(
    "target", "text", None, "What the model is made to write. Nothing: its own answer.", only="encoder-decoder"
)
CHOSEN = Param(
    "chosen", "text", None, 'A word, or a label of a classifier. In double quotes, exactly that token: "is".'
)
SIDE = Param(
    "side", "choice", "auto", "Whose attention: within the encoder or the decoder, or from the decoder to the encoder.",
    ("auto", "encoder", "decoder", "cross"), only="encoder-decoder",
)  # fmt: skip
STACK = Param(
    "side", "choice", "auto", "Whose neurons.", ("auto", "encoder", "decoder"), only="encoder-decoder"
)  # fmt: skip
TAPS = (
    "output", "input", "attention.output", "feedforward.output", "attention.heads", "attention.query", "attention.key",
    "attention.value", "attention.scores", "attention.weights", "feedforward.hidden", "cross_attention.output",
    "cross_attention.heads",
)  # fmt: skip
SEED = Param("seed", "int", 0, "The same seed gives the same answer.", low=0, high=2**31 - 1)
NEW = Param("max_new_tokens", "int", None, "Let the model go on with the text for so many tokens.", low=0, high=512)


def _k(default: int, help: str) -> Param:
    return Param("k", "int", default, help, low=1, high=1000)


_ALL = (
    Question(
        "attention", "attention", "Attention", "Who looks at whom?",
        "The attention weights of every head, and each head in a few numbers: how spread out it is, how far it looks.",
        (LAYERS, HEADS, Param("words", "bool", False, "Whole words instead of tokens."), SIDE, TARGET),
        _attention, (_reads,), second="pair",
    ),
    Question(
        "query-key", "query-key", "Attention", "How does a head choose?",
        "One head from close by: a query and the keys, number by number, become scores and then weights.",
        (LAYER, HEAD, replace(POSITION, default=-1), SIDE, TARGET), _query_key, (_reads, _no_memory), second="pair",
    ),
    Question(
        "attention-steps", "attention-steps", "Attention", "What does a layer do, step by step?",
        "One layer's attention in six steps: vectors, products, scaling, softmax, weighted sum, all heads joined.",
        (LAYER, SIDE, TARGET), _attention_steps, (_reads, _no_memory), second="pair",
    ),
    Question(
        "ablation", "ablation", "Attention", "What is a head worth?",
        "Each head is taken away in turn: how far does the model's answer move?",
        (
            LAYERS, HEADS, replace(POSITION, help=f"Whose answer. {POSITION.help} Nothing: the next or hidden word."),
            replace(CHOSEN, help=f"Follow the score of this one, instead of all chances. {CHOSEN.help}"),
            Param("how", "choice", "zero", "A head says nothing, or always what it says on average.", ("zero", "mean")),
            SIDE, TARGET, _k(10, "How many answers to list, with and without the head."),
        ),
        _ablation, (_reads, _has_chances), second="pair",
    ),
    Question(
        "saliency", "saliency", "Why did it say that?", "Which words mattered?",
        "How much each token mattered for what the model wrote, filled in, or decided.",
        (
            Param("method", "choice", METHODS[0], "How it is measured.", METHODS),
            replace(NEW, help="How many tokens to write and explain; 0 explains the text itself."),
            replace(POSITIONS, name="outputs", help="Which tokens to explain, counted from 0: 3, or 0-2,5."),
            replace(TARGET, only="", help="What the model is made to say: a text; a hidden word; a label."),
            replace(CHOSEN, name="against", help=f"Why this and not that? {CHOSEN.help}"),
            Param("steps", "int", 32, "Points that integrated gradients looks at.", low=1, high=1024),
        ),
        _saliency, (_reads, _has_reasons), second="pair",
    ),
    Question(
        "patching", "patching", "Why did it say that?", "Where is it decided?",
        "Of two texts that differ in a word: what the first makes of each layer and place is put into the second.",
        (
            Param("tap", "choice", "output", "Which tensor of each layer.", TAPS),
            Param("by", "choice", "auto", "One position at a time, or one head.", ("auto", "position", "head")),
            replace(CHOSEN, help=f"The answer that is followed. Nothing: the first text's own. {CHOSEN.help}"),
            replace(CHOSEN, name="against", help="The answer it is held against."),
            LAYERS, replace(POSITIONS, help=f"{POSITIONS.help} Nothing: all of them."), HEADS,
            replace(POSITION, help=f"Whose answer. {POSITION.help} Nothing: the next or hidden word."),
            replace(TARGET, help="What the model has written so far. Nothing: it begins."),
            replace(STACK, help="Whose tensor."), _k(5, "How many answers to list for each text."),
        ),
        _patching, (_reads, _has_chances), second="needed",
    ),
    Question(
        "hidden-states", "hidden-states", "Layer by layer", "When does the answer appear?",
        "What the model would say after each layer: the rank of a token, and the likeliest ones.",
        (
            replace(POSITIONS, help=f"{POSITIONS.help} Nothing: all, or the hidden words."),
            replace(CHOSEN, help=f"The token to follow. Nothing: the one that comes next. {CHOSEN.help}"),
            _k(5, "How many tokens to list."), TARGET,
        ),
        _hidden_states, (_reads, _says_words), second="pair",
    ),
    Question(
        "comparison", "comparison", "Layer by layer", "This word or that one?",
        "Two or more candidates for one place, followed through the layers.",
        (
            Param("candidates", "text", None, "Words with commas between: is, are. Nothing: the two likeliest."),
            replace(POSITION, help=f"{POSITION.help} Nothing: the last, or the first hidden word."),
            replace(TARGET, help="What the model has written so far. Nothing: it begins."),
        ),
        _comparison, (_reads, _says_words), second="pair",
    ),
    Question(
        "similarity", "similarity", "Layer by layer", "Do two layers see alike?",
        "Every layer compared with every other, of this model or a second one, over a text or several, one in a line.",
        (
            Param("other", "model", None, "A second model to compare with. Nothing: the layers of this one."),
            Param("measure", "choice", "cka", "CKA, or the mean canonical correlation.", ("cka", "cca")),
            replace(LAYERS, help="Which layers; 0 is the embedding. Nothing: all of them."),
            replace(LAYERS, name="other_layers", help="Which layers of the second model. Nothing: all of them."),
            Param("unbiased", "bool", True, "CKA: an estimate that few tokens do not raise."),
            Param("variance", "float", 0.99, "CCA: the share of each layer's variance to keep.", low=0.01, high=1.0),
            Param("skip", "int", 0, "Leave out so many tokens at the beginning of each text.", low=0, high=1000),
        ),
        _similarity, (_reads,),
    ),
    Question(
        "neurons", "neurons", "Neurons", "Which neurons fire?",
        "How strongly the neurons of the feed-forward layers fire at each token; in clusters, if asked.",
        (
            LAYERS, _k(50, "How many neurons to show, the strongest."),
            Param("clusters", "int", None, "Put neurons that fire together into so many groups.", low=1, high=100),
            SEED, STACK, TARGET, NEW,
        ),
        _neurons, (_reads,), second="pair",
    ),
    Question(
        "top-tokens", "top-tokens", "Neurons", "What excites a neuron?",
        "The places in a corpus, one text in a line, at which one neuron fires most strongly.",
        (
            replace(LAYER, default=-1),
            Param("neuron", "int", None, "Which one, counted from 0. Nothing: one that the first text excites."),
            _k(10, "How many places to show."),
            Param("around", "int", 8, "How many tokens to show on either side.", low=0, high=64),
        ),
        _top_tokens, (_reads,),
    ),
    Question(
        "factors", "factors", "Neurons", "Which themes are there?",
        "The activations of many neurons, taken apart into a few factors that rise and fall along the text.",
        (
            LAYERS, Param("factors", "int", None, "How many. Nothing: six, or fewer for a short text.", low=1, high=64),
            _k(8, "How many neurons to list for each factor."), SEED, STACK, TARGET, NEW,
        ),
        _factors, (_reads, _has_sklearn), second="pair",
    ),
    Question(
        "next-token", "next-tokens", "The answer", "What may come next?",
        "The likeliest next tokens, with the chances that the model itself gives them.",
        (_k(10, "How many tokens to list."), replace(TARGET, help="What the model has written so far.")),
        _next_token, (_tokenizes, _goes_on), text=False,
    ),
    Question(
        "sampling", "sampling", "The answer", "How is the next token drawn?",
        "The chances of the next token before and after temperature, top-k and top-p, and some draws.",
        (
            Param("temperature", "float", 1.0, "Above 1: bolder; below 1: safer.", low=0.01, high=100),
            Param("top_k", "int", None, "Only the k likeliest tokens.", low=1, high=1_000_000),
            Param("top_p", "float", None, "Only the likeliest that together reach this share.", low=0.001, high=1.0),
            SEED, Param("draws", "int", 12, "How many tokens to draw.", low=1, high=1000),
            _k(200, "How many candidates to name."),
        ),
        _sampling, (_tokenizes, _goes_on), text=False,
    ),
    Question(
        "beams", "beams", "The answer", "How is an answer searched?",
        "Beam search as a growing tree: what was followed, what was dropped, and how the ends rank.",
        (
            Param("num_beams", "int", 4, "How many texts are followed at once; 1 takes the likeliest each time.",
                  low=1, high=16),
            replace(NEW, default=12, low=1, help="How many tokens to write at most."),
            Param("length_penalty", "float", None, "Above 1 favours longer answers. Nothing: the model's own.",
                  low=-10, high=10),
            Param("beside", "int", 3, "With one beam: how many of the tokens not taken to show.", low=0, high=20),
        ),
        _beams, (_tokenizes, _goes_on), text=False,
    ),
    Question(
        "cache", "cache", "The answer", "What does the cache save?",
        "Every step of writing: what is computed again without a cache, and what is only read with one.",
        (replace(NEW, default=12, low=1, help="How many tokens to write."),),
        _cache, (_tokenizes, _goes_on, _has_cache),
    ),
    Question(
        "prediction", "prediction", "The answer", "What does it decide?",
        "A classifier's labels, hidden words, whether one sentence follows another, where an answer stands.",
        (
            _k(5, "How many candidates to list for a hidden word or an answer."),
            Param("choices", "text", None, "Multiple choice: the continuations, with commas between."),
        ),
        _prediction, (_tokenizes, _answers), second="pair",
    ),
    Question(
        "walk", "walk", "The answer", "How does it get there?",
        "One token followed through one layer, step by step, with the actual numbers.",
        (
            LAYER, HEAD, replace(POSITION, help=f"{POSITION.help} Nothing: the last word."),
            Param("numbers", "int", 6, "How many numbers of each vector to show.", low=1, high=4096),
            _k(10, "How many guesses to list at the end."),
            replace(STACK, help="Which stack is followed; auto: the decoder."), TARGET,
        ),
        _walk, (_reads, _no_memory),
    ),
    Question(
        "positions", "positions", "The model itself", "How does it know the order?",
        "The model's position schemes: vectors that are added, turns, or numbers for distances.",
        (
            Param("length", "int", 64, "For texts of up to so many tokens.", low=2, high=2048),
            replace(LAYER, help="Where each layer has numbers of its own: which one."),
        ),
        _positions, (), text=False,
    ),
    Question(
        "parameters", "parameters", "The model itself", "Where do the parameters live?",
        "Every part of the model with its shape and size.",
        (Param("published", "text", None, "A published size instead, by its name: gpt2. No weights are needed."),),
        _parameters, (), text=False,
    ),
)  # fmt: skip
QUESTIONS: dict[str, Question] = {question.name: question for question in _ALL}
