"""What the page may ask: explanations with their parameters, and texts with their options."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, Any

from clearhead.errors import InputError
from clearhead.generation_options import FIELDS
from clearhead.messages import say
from clearhead.schema import Field, check_names
from clearhead.server.limits import Limits
from clearhead.server.requests import check_body, text_field
from clearhead.server.store_table import PassageText

if TYPE_CHECKING:
    from clearhead.explain.question import Question

FILES = {"html": "text/html; charset=utf-8", "json": "application/json", "csv": "text/csv; charset=utf-8"}
# What of generate's options the page may set; a form begins with the first.
OPTIONS = (
    "max_new_tokens temperature top_k top_p num_beams seed min_new_tokens min_p typical_p repetition_penalty "
    "no_repeat_ngram_size length_penalty stop_strings src_lang tgt_lang do_sample early_stopping"
).split()
NOT_IN_FORMS = ("do_sample", "early_stopping")  # the others imply the one; beams have their own idea of the other
FOR_TRANSLATORS = ("src_lang", "tgt_lang")
MOST_EDITS = 8  # passages that a request writes otherwise
MAX_STOP_STRINGS = 16


@dataclass(frozen=True)
class ExplainRequest:
    """A question about a text. Every part is of its kind and within its limits.

    other_models   parameters that name a second model
    stores         parameters that name a store of passages
    edits          passages of it that say something else for this request: document, which chunk of it, text
    """

    model: str
    question: Question
    text: str
    second: str | None
    params: dict[str, Any]
    other_models: tuple[str, ...]
    stores: tuple[str, ...] = ()
    edits: tuple[PassageText, ...] = ()

    @classmethod
    def from_body(cls, body: dict[str, Any], limits: Limits, more: tuple[Field, ...] = ()) -> ExplainRequest:
        from clearhead.explain.questions import question

        values = check_body(
            body,
            (
                text_field("model", limits),
                text_field("question", limits),
                text_field("text", limits, default=""),
                text_field("second", limits, default=None),
                Field(name="params", type=dict[str, Any]),
                Field(name="edits", type=list[dict[str, Any]] | None, longest=MOST_EDITS),
                *more,
            ),
        )
        chosen = question(values["question"])
        params = values["params"] or {}
        for name, value in params.items():
            if isinstance(value, str):
                text_field(text_field("params", limits).check(name)[:50], limits).check(value)
        params = chosen.checked(params)
        others = tuple(p.name for p in chosen.params if p.kind == "model" and params[p.name] is not None)
        stores = tuple(p.name for p in chosen.params if p.kind == "store")
        edits = tuple(_checked_edit(edit, limits) for edit in values["edits"] or ())
        if edits and not stores:
            raise InputError(say("studio.nothing_to_edit", question=chosen.name))
        return cls(values["model"], chosen, values["text"], values["second"], params, others, stores, edits)

    @property
    def models(self) -> tuple[str, ...]:
        return (self.model, *(self.params[name] for name in self.other_models))

    @property
    def key(self) -> str:
        """The same for the same request."""
        parts = [self.model, self.question.name, self.text, self.second, self.params, self.edits]
        return json.dumps(parts, sort_keys=True, default=repr)

    @property
    def texts(self) -> dict[str, str]:
        """Everything that will be read by the model, by name."""
        kinds = {param.name: param.kind for param in self.question.params}
        texts = {name: value for name, value in self.params.items() if kinds.get(name) == "text" and value}
        return {"text": self.text, **({"second": self.second} if self.second else {}), **texts}


@dataclass(frozen=True)
class GenerateRequest:
    """A text that a model shall go on with, and how."""

    model: str
    text: str
    options: dict[str, Any]

    @classmethod
    def from_body(cls, body: dict[str, Any], limits: Limits) -> GenerateRequest:
        fields = (text_field("model", limits), text_field("text", limits, default=""))
        values = check_body(body, (*fields, Field(name="options", type=dict[str, Any])))
        return cls(values["model"], values["text"], _checked_options(values["options"] or {}, limits))


def _checked_edit(edit: dict[str, Any], limits: Limits) -> PassageText:
    position = Field(name="position", type=int, default=0, least=0, most=2**31 - 1)
    values = check_body(edit, (text_field("document", limits), position, text_field("text", limits)))
    return values["document"], values["position"], values["text"]


def _checked_options(values: dict[str, Any], limits: Limits) -> dict[str, Any]:
    known = option_fields(limits)
    check_names(values, known, say("studio.unknown_option"))
    options = {name: known[name].check(value) for name, value in values.items() if value is not None}
    # The model's own settings hold but for these two: a page does not wait for long, and one beam can be followed.
    return {name: known[name].default for name in ("max_new_tokens", "num_beams")} | options


@cache
def option_fields(limits: Limits) -> dict[str, Field]:
    """The options of generation that the page may set, with the limits of this server."""
    bounds: dict[str, dict[str, Any]] = {
        "max_new_tokens": {"type": int, "default": min(64, limits.new_tokens), "most": limits.new_tokens,
                           "help": say("options.new_tokens")},
        "num_beams": {"most": limits.beams},
        "seed": {"type": int | None, "least": 0, "most": 2**31 - 1, "test": None, "expected": ""},
        "stop_strings": {"test": _are_few_strings},
    }  # fmt: skip
    languages = {n: Field(name=n, type=str | None, longest=100, help=say(f"options.{n}")) for n in FOR_TRANSLATORS}
    return {name: replace((FIELDS | languages)[name], **bounds.get(name, {})) for name in OPTIONS}


def _are_few_strings(value: str | list[str]) -> bool:
    return bool(value) and (isinstance(value, str) or (all(value) and len(value) <= MAX_STOP_STRINGS))


def write_form(limits: Limits) -> dict[str, Any]:
    """What can be set about a text that a model writes, in the shape of a question (`Question.to_dict`)."""
    params = [
        field.to_dict() | {"label": say(f"options.label.{name}"), "encoder_decoder_only": name in FOR_TRANSLATORS}
        for name, field in option_fields(limits).items()
        if name not in NOT_IN_FORMS
    ]
    words = {"title": say("questions.write.title"), "help": say("questions.write.help")}
    group = {"group": "answer", "group_title": say("questions.group.answer")}
    return {"name": "write", **group, **words, "second": "", "text": False, "params": params}
