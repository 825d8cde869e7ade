"""What a model can be asked: each check gives the reason why it cannot answer, or None. In both languages."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from clearhead.errors import ClearheadError
from clearhead.explain.recurrence import recurrent_layers
from clearhead.explain.scores import answer_scores
from clearhead.messages import Message, say
from clearhead.pipeline import Pipeline

Reason = Message | str | None


def _refusal(check: Callable[[], Any]) -> Reason:
    """What a check that raises has to say."""
    try:
        check()
    except ClearheadError as error:
        return error.message
    return None


def has_tokenizer(pipe: Pipeline) -> Reason:
    return _refusal(lambda: pipe.tokenizer)


def reads_text(pipe: Pipeline) -> Reason:
    """Texts, be it as tokens or as whole words."""
    return None if pipe.reads_text else has_tokenizer(pipe) or _side_by_side(pipe)


def _side_by_side(pipe: Pipeline) -> Reason:
    """Several stacks that read different things: what is asked must be about one of them."""
    if set(pipe.model.stacks) <= {"", "encoder", "decoder"}:
        return None
    return say("explain.reads_side_by_side", title=pipe.title, towers=list(pipe.model.stacks))


def compares_texts_with_pictures(pipe: Pipeline) -> Reason:
    if pipe.model.head.answers == "similarity":
        return None
    return say("explain.compares_no_pictures", title=pipe.title)


def reads_one_input(pipe: Pipeline) -> Reason:
    """One input at a time, through a codec of any kind: a tokenizer, an image processor …"""
    if pipe.model.reads_choices:
        return say("explain.reads_several_texts", task=pipe.model.task)
    return has_tokenizer(pipe) if pipe.codec is None else None


def has_layers(pipe: Pipeline) -> Reason:
    """Not a table alone, in which no word knows of any other."""
    if any(len(stack.layers) for stack in pipe.model.stacks.values()):
        return None
    if not pipe.model.stacks:
        return say("drawing.ask_about_drawing", title=pipe.title)
    return say("explain.only_a_table", title=pipe.title)


def has_attention(pipe: Pipeline) -> Reason:
    return None if _attends_to_states(pipe) else _has_part(pipe, "attention")


def has_heads(pipe: Pipeline) -> Reason:
    """Attention in the layers, with queries, keys and heads."""
    return (
        say("explain.attends_to_states", family=pipe.model.family.title)
        if _attends_to_states(pipe)
        else (_has_part(pipe, "attention"))
    )


def has_recurrent_attention(pipe: Pipeline) -> Reason:
    """Attention over an encoder's states."""
    if _attends_to_states(pipe):
        return None
    if recurrent_layers(pipe.model):
        return say("explain.looks_at_no_states", family=pipe.model.family.title)
    return say("explain.attends_in_layers", family=pipe.model.family.title)


def _attends_to_states(pipe: Pipeline) -> bool:
    return getattr(pipe.model.output_stack, "attention", None) is not None


def has_attention_or_recurrence(pipe: Pipeline) -> Reason:
    return None if recurrent_layers(pipe.model) else has_attention(pipe)


def has_neurons(pipe: Pipeline) -> Reason:
    return None if recurrent_layers(pipe.model) else _has_part(pipe, "feedforward") or _side_by_side(pipe)


def has_recurrence(pipe: Pipeline) -> Reason:
    return None if recurrent_layers(pipe.model) else say("explain.no_recurrence", family=pipe.model.family.title)


def _has_part(pipe: Pipeline, part: str) -> Reason:
    layers = [layer for stack in pipe.model.stacks.values() for layer in stack.layers]
    if all(getattr(layer, part, None) is None for layer in layers):
        return say(f"explain.no_{part}", family=pipe.model.family.title)
    return None


def has_language_head(pipe: Pipeline) -> Reason:
    """For the logit lens and whatever else is about words."""
    if pipe.model.task == "permutation-lm":
        return say("explain.words_in_a_second_stream", family=pipe.model.family.title)
    if pipe.model.language_head is None:
        return say("explain.says_no_words", task=pipe.model.task)
    return None


def can_generate(pipe: Pipeline) -> Reason:
    return None if pipe.model.can_generate else say("explain.does_not_write", task=pipe.model.task)


def has_probabilities(pipe: Pipeline) -> Reason:
    refused = _refusal(lambda: answer_scores(pipe)) is not None
    return say("explain.no_probabilities", task=pipe.model.task) if refused else None


def has_outputs_to_attribute(pipe: Pipeline) -> Reason:
    model = pipe.model
    if model.head.answers == "similarity":
        return say("explain.give_it_labels", title=pipe.title)
    labels = model.head.answers == "token-labels" and not model.is_encoder_decoder
    return None if labels or model.head.answers == "label" else has_language_head(pipe)


def answers_as_it_stands(pipe: Pipeline) -> Reason:
    if pipe.model.task in ("features", "permutation-lm"):
        return say("explain.gives_vectors", task=pipe.model.task)
    return say("explain.ask_for_next_token") if pipe.model.can_generate else None


def no_segment_memory(pipe: Pipeline) -> Reason:
    if getattr(pipe.model.config, "mem_len", None) and pipe.model.task == "causal-lm":
        return say("explain.looks_at_memory", family=pipe.model.family.title)
    return None


def has_kv_cache(pipe: Pipeline) -> Reason:
    if hasattr(pipe.model.config, "mem_len"):
        return say("explain.memory_for_cache", family=pipe.model.family.title)
    if recurrent_layers(pipe.model):
        return say("explain.state_for_cache", family=pipe.model.family.title)
    return has_attention(pipe)


def has_positions(pipe: Pipeline) -> Reason:
    if recurrent_layers(pipe.model):
        return say("explain.order_in_state", family=pipe.model.family.title)
    in_a_row = all(stack.embed.reads_tokens for stack in pipe.model.stacks.values())
    return None if in_a_row else say("explain.places_on_a_grid", family=pipe.model.family.title)


def need_sklearn(what: Message) -> None:
    try:
        import sklearn  # type: ignore[import-untyped]  # noqa: F401
    except ImportError:
        raise ClearheadError(say("explain.needs_sklearn", what=what)) from None


def has_sklearn(pipe: Pipeline) -> Reason:
    return _refusal(lambda: need_sklearn(say("explain.this_question")))
