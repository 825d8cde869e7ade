"""Replaced-token detection: a small model fills masked words in, a larger one finds which were replaced (ELECTRA)."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from clearhead.errors import InputError
from clearhead.models import Config, Model
from clearhead.models.heads import HeadInputs
from clearhead.text import Tokenizer
from clearhead.train.data.types import Batch, Example
from clearhead.train.objectives.base import check_weights, term_sums
from clearhead.train.objectives.masked import MaskedLM, masked_batch
from clearhead.train.objectives.padding import IGNORED
from clearhead.train.objectives.running_text import TokenPrediction, pad_id


class ReplacedTokens(MaskedLM):
    """15 % of the tokens are chosen and masked; a generator guesses them, and what it draws stands in their place.

    The discriminator says of every token whether it was replaced. A drawn token that is the original one counts as
    original. The loss is the generator's, as in masked-lm, plus `weight` times the discriminator's; no gradient goes
    from one to the other, but they share their embeddings. What is kept in the end is the discriminator.

    mask_replace_prob   the share of the chosen that the generator sees masked: all, as in the paper (its code: 0.85)
    generator_size      the generator's width as a share of the discriminator's (small and large: 1/4, base: 1/3)
    weight              of the discriminator's loss
    """

    name = "replaced-token"
    task = "replaced-token"
    not_saved = "the generator that replaces the words"
    higher_is_better = frozenset({"masked_accuracy", "recall", "precision"})

    def __init__(
        self,
        tokenizer: Tokenizer,
        length: int,
        *,
        mlm_probability: float = 0.15,
        mask_replace_prob: float = 1.0,
        generator_size: float = 0.25,
        weight: float = 50.0,
        max_predictions: int | None = None,
    ) -> None:
        super().__init__(
            tokenizer,
            length,
            mlm_probability=mlm_probability,
            mask_replace_prob=mask_replace_prob,
            random_replace_prob=0.0,
            max_predictions=max_predictions,
        )
        if not 0 < generator_size <= 1:
            raise InputError(
                f"generator_size is {generator_size}; it is a share of the model's width, above 0, up to 1."
            )
        self.generator_size, self.weight = generator_size, weight
        check_weights(generator=1.0, weight=weight)

    @property
    def loss_weights(self) -> dict[str, float]:
        return {"generator": 1.0, "discriminator": self.weight}

    def noise(self, example: Example, rng: np.random.Generator) -> Example:
        masked = super().noise(example, rng)
        # drawn here, so that what is drawn from the generator depends on the example alone: (time,) in [0, 1)
        return masked | {"draws": rng.random(len(masked["input_ids"]), dtype=np.float32)}

    def collate(self, examples: Sequence[Example]) -> Batch:
        batch = masked_batch(examples, pad_id(self.tokenizer))
        time = batch.inputs["input_ids"].shape[1]
        draws = [np.pad(example["draws"], (0, time - len(example["draws"]))) for example in examples]
        batch.inputs["draws"] = torch.from_numpy(np.stack(draws))
        batch.counts = {"generator": batch.counts["loss"], "discriminator": batch.units}
        return batch

    def training_module(self, model: Model) -> nn.Module:
        if model.head.answers != "replaced":
            raise InputError(
                f"replaced-token trains a model with the head of that name, not one for {model.task}. "
                "ELECTRA has it: make the model with family electra."
            )
        return GeneratorAndDiscriminator(model, generator_for(model, self.generator_size))

    def losses(self, model: nn.Module, batch: Batch) -> dict[str, Tensor]:
        out = model(**batch.inputs)
        return {"generator": out["generator"], "discriminator": out["discriminator"]}

    @torch.no_grad()
    def measure(self, model: nn.Module, batch: Batch) -> dict[str, float]:
        out = model(**batch.inputs)
        return term_sums({name: out[name] for name in self.loss_weights}, batch) | {
            name: float(out[name]) for name in ("masked_hits", "replaced", "true_positives", "flagged")
        }

    def report(self, sums: Mapping[str, float]) -> dict[str, float]:
        """Of the replaced tokens, how many were found; of those taken for replaced, how many were."""
        return super(TokenPrediction, self).report(sums) | {
            "masked_accuracy": sums["masked_hits"] / max(sums["generator.count"], 1),
            "recall": sums["true_positives"] / max(sums["replaced"], 1),
            "precision": sums["true_positives"] / max(sums["flagged"], 1),
        }


class GeneratorAndDiscriminator(nn.Module):
    """Both models, as one that is trained."""

    def __init__(self, discriminator: Model, generator: Model) -> None:
        super().__init__()
        self.discriminator = discriminator
        self.generator = generator
        self.train(discriminator.training)

    def forward(
        self,
        input_ids: Tensor,  # (batch, time), with masked words
        labels: Tensor,  # (batch, time): the original words there, -100 elsewhere
        draws: Tensor,  # (batch, time) in [0, 1)
        attention_mask: Tensor | None = None,
    ) -> dict[str, Tensor]:
        chosen = labels != IGNORED
        originals = labels[chosen]
        hidden = self.generator.output_stack(input_ids, attention_mask=attention_mask)
        guesses = self.generator.head(hidden[chosen][None], HeadInputs()).logits[0]  # (chosen, vocabulary)
        filled = input_ids.clone()
        filled[chosen] = drawn(guesses.detach(), draws[chosen])
        replaced = chosen & (filled != labels)
        real = torch.ones_like(chosen) if attention_mask is None else attention_mask.bool()
        judged = self.discriminator(filled, attention_mask, labels=replaced.long().masked_fill(~real, IGNORED))
        losses = {"generator": F.cross_entropy(guesses.float(), originals), "discriminator": judged.loss}
        if self.training:
            return losses
        flagged = (judged.logits > 0) & real
        return losses | {
            "masked_hits": (guesses.argmax(-1) == originals).sum(),
            "replaced": replaced.sum(),
            "true_positives": (flagged & replaced).sum(),
            "flagged": flagged.sum(),
        }


def drawn(logits: Tensor, draws: Tensor) -> Tensor:
    """A token from each row's distribution: the first at which the summed probability passes the draw. (rows,)"""
    summed = logits.double().softmax(-1).cumsum(-1)
    passed = torch.searchsorted(summed, draws[:, None].double() * summed[:, -1:], right=True)
    return passed[:, 0].clamp(max=logits.shape[-1] - 1)


def generator_for(model: Model, size: float) -> Model:
    """A narrower masked-lm model of the same family, on the same embeddings: all of them, as far as the projection."""
    generator = model.family.make(generator_config(model.config, size), "masked-lm", model.device)
    theirs, ours = model.output_stack.embed, generator.output_stack.embed
    for name in ("tokens", "positions", "segments", "norm"):
        setattr(ours, name, getattr(theirs, name))
    generator.tie_weights()
    return generator


def generator_config(config: Config, size: float) -> Config:
    """As many layers, narrower: feed-forward 4 × width, heads of 64 (fewer, where they would not divide it)."""
    width = max(1, round(config.hidden_size * size))
    heads = max(n for n in range(1, max(1, width // 64) + 1) if width % n == 0)
    return dataclasses.replace(config, hidden_size=width, intermediate_size=4 * width, num_attention_heads=heads)  # type: ignore[call-arg]
