"""What every pipeline is: a model with its codec. What goes in and comes out is the business of its subclasses."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import Any, ClassVar

from torch import Tensor

from clearhead import hub
from clearhead.codec import Codec
from clearhead.errors import InputError
from clearhead.messages import say
from clearhead.models import Model
from clearhead.text import Tokenizer
from clearhead.units import ShownPicture, Unit, WrittenUnit


@dataclass(frozen=True)
class Reading:
    """An input as a model reads it: the tensors to call it with, and the units to show beside every number.

    inputs   what the model is called with, one row each
    units    what its (only) stack reads; of an encoder–decoder, what the encoder reads
    target   what the decoder reads, from its start token on; empty without one
    written  what is written at each place of the target: its next token. One fewer where the text does not say how
             it goes on, and empty where nothing is written
    stack    of a model with several stacks that read side by side: the name of the one that reads this
    """

    inputs: dict[str, Tensor]
    units: list[Any]  # of one kind: TokenUnit, PatchUnit, NoteUnit
    target: list[Any]
    written: list[WrittenUnit] = field(default_factory=list)
    stack: str = ""

    @property
    def outputs(self) -> list[Any]:
        """The units at which the head gives its answers: the decoder's, where there is one."""
        return self.target or self.units


class Pipeline:
    """`model` is the network, `codec` turns what a person gives into what it reads."""

    reads_text: ClassVar[bool] = False
    no_text: ClassVar[str] = "generation.about_words"  # the key of what is said where a text is wanted

    def __init__(self, model: Model, codec: Codec | None, name: str = "") -> None:
        self.model = model
        self.codec = codec
        self.name = name

    @classmethod
    def from_folder(cls, folder: os.PathLike[str], model: Model, name: str = "") -> Pipeline:
        """Around a model that was loaded from `folder`: its codec is read there too."""
        raise NotImplementedError

    @property
    def title(self) -> str:
        """How a sentence begins that speaks of it."""
        return self.name or "This model"

    @property
    def tokenizer(self) -> Tokenizer:
        """The codec of a model that reads text; others have none."""
        raise InputError(say("generation.reads_no_text", title=self.title, family=self.model.family.title))

    def read(self, raw: Any, /, pair: Any = None, target: Any = None) -> Reading:
        """How the model reads an input: what explanations look at.

        pair     a second text, for models that read two
        target   of an encoder–decoder: what it is made to write
        """
        if self.codec is None:
            raise InputError(say("generation.no_codec", title=self.title))
        if pair is not None or target is not None:
            raise InputError(say("generation.one_input", title=self.title))
        inputs = {name: tensor.to(self.model.device) for name, tensor in self.codec(raw).items()}
        units: list[Unit] = self.codec.units(raw)
        return Reading(inputs, units, [])

    def shown(self, raw: Any, /) -> ShownPicture | None:
        """An input that is a picture, for whoever draws over it; None of anything else."""
        return None

    def count_units(self, raw: Any, /) -> int:
        """How long an input is, in units."""
        return 0 if self.codec is None else len(self.codec.units(raw))

    def save(self, folder: str | os.PathLike[str], overwrite: bool = False, format: str | None = None) -> None:
        """Write config.json, model.safetensors and the codec's files: whole, or not at all.

        format   "transformers": as a family which that library knows, where it does not know the model's own (the 2017
                 Transformer as Marian or Pegasus)
        """
        hub.save_model(hub.in_format(self.model, format), folder, self.codec, overwrite=overwrite)

    def __repr__(self) -> str:
        size = f"{self.model.num_parameters():,} parameters"
        kind = self.model.quantized or self.model.dtype
        return f"<{self.name or 'model'}: {self.model.family.title} for {self.model.task}, {size}, {kind}>"
