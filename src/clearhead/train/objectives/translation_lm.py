"""Translation language modelling: masked words in a sentence and its translation, side by side (XLM)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from clearhead.errors import InputError
from clearhead.models import Model
from clearhead.text import Tokenizer
from clearhead.train.data.types import Batch, Example, Record, check_columns
from clearhead.train.objectives.fields import text_of
from clearhead.train.objectives.masked import MaskedLM, masked_batch
from clearhead.train.objectives.padding import padded
from clearhead.train.objectives.running_text import pad_id


class TranslationLM(MaskedLM):
    """[CLS] source [SEP] [CLS] target [SEP]: a hidden word may be found in the other language.

    Positions start anew at the second sentence, so that words face their translations; every token has the number of
    its language, where the model knows languages. A pair that is too long is left out.

    languages   the names of the source's and the target's; with a model that has lang2id, they give the numbers,
                otherwise the source is 0 and the target 1
    """

    name = "translation-lm"
    columns = ("source", "target")
    blocks = False

    def __init__(
        self,
        tokenizer: Tokenizer,
        length: int,
        *,
        languages: Sequence[str] = (),
        **masking: Any,
    ) -> None:
        super().__init__(tokenizer, length, **masking)
        if len(languages) not in (0, 2):
            raise InputError(f"languages names the source's and the target's, such as [en, fr], not {list(languages)}.")
        self.languages = tuple(languages)
        self.numbers: tuple[int, int] | None = (0, 1)  # of the two languages; None: the model knows none
        self.first_position = 0

    def identity(self) -> dict[str, Any]:
        return super().identity() | {"length": self.length}  # what is too long is not on disk

    def encode_batch(self, records: Sequence[Record]) -> list[list[Example]]:
        for record in records:
            check_columns(self.columns, record)
        texts = [text_of(record, name) for record in records for name in self.columns]
        rows = self.tokenizer(texts, add_special_tokens=False)["input_ids"]
        return [self._pair(*rows[n : n + 2]) for n in range(0, len(rows), 2)]

    def _pair(self, source: Sequence[int], target: Sequence[int]) -> list[Example]:
        if not source or not target or len(source) + len(target) + 4 > self.length:
            return []
        ids = [self.first, *source, self.last, self.first, *target, self.last]
        return [{"input_ids": np.asarray(ids), "second": len(source) + 2}]

    def noise(self, example: Example, rng: np.random.Generator) -> Example:
        ids = np.asarray(example["input_ids"], dtype=np.int64)
        inputs, labels = self.masked(ids, rng)
        return {"input_ids": inputs, "labels": labels, "second": example["second"]}

    def collate(self, examples: Sequence[Example]) -> Batch:
        batch = masked_batch(examples, pad_id(self.tokenizer))
        sizes = [(int(e["second"]), len(e["input_ids"]) - int(e["second"])) for e in examples]
        batch.inputs["position_ids"] = padded([np.concatenate((np.arange(a), np.arange(b))) for a, b in sizes], 0)
        batch.inputs["langs"] = padded([np.repeat([0, 1], size) for size in sizes], 0)  # 0 source, 1 target
        return batch

    def configure(self, config: dict[str, Any]) -> dict[str, Any]:
        """A new XLM has a row for each language."""
        if config.get("model_type") != "xlm" or config.get("lang2id"):
            return config
        names = dict(enumerate(self.languages or ("source", "target")))
        return {
            **config,
            "n_langs": max(2, config.get("n_langs") or 0),
            "lang2id": {name: n for n, name in names.items()},
            "id2lang": {str(n): name for n, name in names.items()},
        }

    def training_module(self, model: Model) -> nn.Module:
        if model.is_encoder_decoder:
            raise InputError(f"translation-lm trains one encoder; {model.family.title} has an encoder and a decoder.")
        embed = model.output_stack.token_embedder
        self.first_position = embed.first_position
        known: dict[str, int] = model.config.also_stored.get("lang2id") or {}
        if embed.languages is None:
            self.numbers = None
        elif self.languages and known:
            missing = [name for name in self.languages if name not in known]
            if missing:
                raise InputError(f"The model does not know the language {missing[0]!r}; it knows {', '.join(known)}.")
            self.numbers = (known[self.languages[0]], known[self.languages[1]])
        return model

    def model_inputs(self, batch: Batch) -> dict[str, Tensor]:
        """The inputs as this model numbers positions and languages."""
        inputs = dict(batch.inputs)
        inputs["position_ids"] = inputs["position_ids"] + self.first_position
        side = inputs.pop("langs")
        if self.numbers is not None:
            inputs["langs"] = torch.where(side == 0, *self.numbers)
        return inputs
