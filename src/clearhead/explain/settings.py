"""What can be set about a question: fields with a label and a help by key, and those that several questions share."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, Literal

from clearhead.messages import Message, say
from clearhead.messages.questions import SENTENCES
from clearhead.pipeline import Pipeline
from clearhead.schema import Field, Mismatch, shown

LONGEST = 20_000  # characters of a value that is a text
MOST = 10_000  # numbers of a value that is a list


@dataclass(frozen=True, kw_only=True)
class Setting(Field):
    """One thing that can be set about a question. None as its default: the question finds it out itself.

    key                    of its help among the messages, under `questions.set.`
    encoder_decoder_only   it means nothing to a model of one stack
    """

    key: str
    encoder_decoder_only: bool = False
    longest: int | None = LONGEST

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "help", say(f"questions.set.{self.key}"))

    @property
    def label(self) -> Message:
        """What a form calls it."""
        return say(f"questions.label.{self.name}")

    def to_dict(self) -> dict[str, Any]:
        labels = [say(f"questions.choice.{c}") if f"choice.{c}" in SENTENCES else c for c in self.choices]
        more = {"label": self.label, "choice_labels": labels, "encoder_decoder_only": self.encoder_decoder_only}
        return super().to_dict() | more


@dataclass(frozen=True, kw_only=True)
class IndicesSetting(Setting):
    """One number or several, of layers, heads or positions: 3, or "0-3, 7"; nothing, or "all": all of them."""

    @property
    def kind(self) -> str:
        return "indices"

    def read(self, value: Any, spelled: bool) -> list[int] | None:
        if isinstance(value, str):
            if value.strip().lower() == "all":
                return None
            parts: Iterable[Any] = re.findall(r"[^,，、\s]+", re.sub(r"(?<=\d)\s+-\s+(?=\d)", "-", value))
        else:
            parts = value if isinstance(value, list | tuple | range) else [value]
        indices: list[int] = []
        for part in parts:
            span = re.fullmatch(r"(\d{1,9})-(\d{1,9})", part) if isinstance(part, str) else None
            if span is not None:
                first, last = int(span[1]), int(span[2])
                if last < first:
                    sentence = say("questions.backwards", name=self.name, value=part, first=last, last=first)
                    raise Mismatch(value, sentence=sentence)
                indices += range(first, min(last, first + MOST) + 1)
            elif isinstance(part, int) and not isinstance(part, bool):
                indices.append(part)
            elif isinstance(part, str) and re.fullmatch(r"[-+]?\d{1,9}", part):
                indices.append(int(part))
            else:
                raise Mismatch(value, sentence=say("questions.indices", name=self.name, value=shown(value)))
            if len(indices) > MOST:
                raise Mismatch(value, sentence=say("questions.too_many_indices", name=self.name, most=MOST))
        return indices or self.default


@dataclass(frozen=True, kw_only=True)
class ModelSetting(Setting):
    """The name of a second model: whoever asks loads it, and hands the pipeline on in its place."""

    @property
    def kind(self) -> str:
        return "model"

    def read(self, value: Any, spelled: bool) -> str | Pipeline:
        if not isinstance(value, str | Pipeline):
            raise Mismatch(value, sentence=say("questions.model_name", name=self.name, value=shown(value)))
        return value


@dataclass(frozen=True, kw_only=True)
class StoreSetting(Setting):
    """A store of passages: its name or folder, or the store itself. A server opens those that it knows by name."""

    @property
    def kind(self) -> str:
        return "store"

    def read(self, value: Any, spelled: bool) -> Any:
        if not isinstance(value, str | os.PathLike) and not callable(getattr(value, "search", None)):
            raise Mismatch(value, sentence=say("questions.store_name", name=self.name, value=shown(value)))
        return value


# ---- those that several questions share

LAYER = Setting(name="layer", key="layer", type=int, default=0)
LAYERS = IndicesSetting(name="layers", key="layers")
HEAD = Setting(name="head", key="head", type=int, default=0)
HEADS = IndicesSetting(name="heads", key="heads")
POSITION = Setting(name="position", key="position", type=int)
ANSWER_POSITION = replace(POSITION, key="answer_position")
POSITIONS = IndicesSetting(name="positions", key="positions")
TARGET = Setting(name="target", key="target", type=str, encoder_decoder_only=True)
WRITTEN_AFTER = replace(TARGET, key="written_after", encoder_decoder_only=False)
WRITTEN_SO_FAR = replace(TARGET, key="written_so_far")
SIDE = Setting(
    name="side", key="side", type=Literal["auto", "encoder", "decoder", "cross"], default="auto",
    encoder_decoder_only=True,
)  # fmt: skip
STACK = replace(SIDE, key="stack", type=Literal["auto", "encoder", "decoder"], choices=())
SEED = Setting(name="seed", key="seed", type=int, default=0, least=0, most=2**31 - 1)
NEW_TOKENS = Setting(name="max_new_tokens", key="max_new_tokens", type=int, least=0, most=512)


def chosen_word(key: str, name: str = "chosen") -> Setting:
    """A word, or of a classifier a label."""
    return Setting(name=name, key=key, type=str)


def count(key: str, default: int) -> Setting:
    """How many are listed or shown."""
    return Setting(name="k", key=key, type=int, default=default, least=1, most=1000)
