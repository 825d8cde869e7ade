"""What a question is: what can be set about it, which models can answer it, and how. questions.py collects them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from clearhead.errors import InputError, did_you_mean
from clearhead.explain.capabilities import has_layers
from clearhead.explain.finding import Finding
from clearhead.explain.settings import ModelSetting, Setting
from clearhead.messages import Message, say
from clearhead.pipeline import Pipeline
from clearhead.schema import shown

Answer = Callable[..., Finding]  # (pipe, text, second text or None, **values)
Check = Callable[[Pipeline], Message | str | None]


@dataclass(frozen=True, kw_only=True)
class Question:
    """
    kind     of the finding that answers it, which is the name of its view
    group    what it stands under in a list: "attention", "why", "layers", "neurons", "answer",
             "retrieval", "words" or "model"
    answer   called with the pipeline, the text, the second text (or None) and the checked values by their names
    checks   each says why a model cannot answer; None if it can
    second   "pair": models that read two texts can be given both; "needed": it is about two texts; "": one text
    text     whether there has to be one
    needs_layers   it is about what a word becomes in its text: a table of word vectors has no answer
    """

    name: str
    kind: str
    group: str
    params: tuple[Setting, ...]
    answer: Answer
    checks: tuple[Check, ...] = ()
    second: Literal["", "pair", "needed"] = ""
    text: bool = True
    needs_layers: bool = True

    @property
    def title(self) -> Message:
        return say(f"questions.{self.name}.title")

    @property
    def help(self) -> Message:
        return say(f"questions.{self.name}.help")

    @property
    def group_title(self) -> Message:
        return say(f"questions.group.{self.group}")

    def fits(self, pipe: Pipeline) -> Message | str | None:
        """None, or the reason why this model cannot answer, as a sentence."""
        checks = (has_layers, *self.checks) if self.needs_layers else self.checks
        return next((reason for check in checks if (reason := check(pipe)) is not None), None)

    def params_for(self, pipe: Pipeline) -> tuple[Setting, ...]:
        """The parameters that mean something to this model."""
        both = pipe.model.is_encoder_decoder
        return tuple(param for param in self.params if both or not param.encoder_decoder_only)

    def checked(self, params: dict[str, Any]) -> dict[str, Any]:
        """A value for every parameter: what was given, or its default. The one place where values are looked at."""
        known = {param.name: param for param in self.params}
        for name in params:
            if name not in known and not known:
                raise InputError(say("questions.nothing_to_set", question=self.name, name=shown(name)))
            if name not in known:
                near = did_you_mean(str(name)[:60], known)
                raise InputError(
                    say("questions.no_such_setting", question=self.name, name=shown(name), known=list(known), near=near)
                )
        return {name: param.parse(params.get(name)) for name, param in known.items()}

    def ask(self, pipe: Pipeline, text: Any, /, second: str | None = None, **params: Any) -> Finding:
        """The finding. Whatever is wrong with what was asked is an InputError, before the model runs if possible.

        text   or whatever else the pipeline's codec takes: a picture, say
        """
        values = self.checked(params)
        second = self._checked_texts(pipe, text, second)
        if (reason := self.fits(pipe)) is not None:
            raise InputError(reason)
        for param in self.params:
            if isinstance(param, ModelSetting) and isinstance(values[param.name], str):
                raise InputError(say("questions.load_first", name=param.name, model=shown(values[param.name])))
        return self.answer(pipe, text, second, **values)

    def _checked_texts(self, pipe: Pipeline, text: Any, second: Any) -> Any:
        """The second text, None where it is empty. Of what is no text, the codec knows what it can be."""
        if pipe.reads_text:
            for which, value in (("the_text", text), ("the_second_text", second)):
                if value is not None and not isinstance(value, str):
                    got = type(value).__name__
                    raise InputError(say("questions.text_is_string", which=say(f"questions.{which}"), got=got))
        if isinstance(second, str) and not second.strip():
            second = None
        if self.text and (text is None or (isinstance(text, str) and not text.strip())):
            raise InputError(say("questions.no_text"))
        if second is not None and not self.second:
            raise InputError(say("questions.one_text", question=self.name))
        if second is None and self.second == "needed":
            raise InputError(say("questions.two_texts", question=self.name))
        return second

    def to_dict(self) -> dict[str, Any]:
        """All that a form needs to know, as plain values."""
        plain = ("name", "kind", "group", "group_title", "title", "help", "second", "text")
        return {name: getattr(self, name) for name in plain} | {"params": [param.to_dict() for param in self.params]}
