"""What a model gives back: named tensors, reachable as attributes, by key, or by place as in `transformers`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Any

from torch import Tensor

from clearhead.nn.latent import LatentDistribution
from clearhead.nn.state import State


@dataclass
class Output:
    """Only what the task computes is set; the rest is None."""

    loss: Tensor | None = None
    logits: Tensor | None = None
    logits_per_image: Tensor | None = None  # (pictures, texts), where the two are compared
    logits_per_text: Tensor | None = None
    text_embeds: Tensor | None = None  # in the space that texts and pictures share
    image_embeds: Tensor | None = None
    sample: Tensor | None = None  # (batch, channels, height, width): a UNet's prediction, a decoder's picture
    latent_dist: LatentDistribution | None = None  # what an autoencoder makes of a picture
    start_logits: Tensor | None = None
    end_logits: Tensor | None = None
    seq_relationship_logits: Tensor | None = None
    lm_logits: Tensor | None = None  # the words of every choice, where `logits` scores the choices
    backward_logits: Tensor | None = None  # the word before, where `logits` scores the next one (ELMo)
    forward_loss: Tensor | None = None  # of each direction, where `loss` is their mean
    backward_loss: Tensor | None = None
    last_hidden_state: Tensor | None = None
    pooler_output: Tensor | None = None
    past_key_values: State | None = None
    mems: tuple[Tensor, ...] | None = None  # what Transformer-XL and XLNet remember, a tensor per layer
    encoder_last_hidden_state: Tensor | None = None
    hidden_states: tuple[Tensor, ...] | None = None
    attentions: tuple[Tensor, ...] | None = None
    cross_attentions: tuple[Tensor, ...] | None = None
    encoder_hidden_states: tuple[Tensor, ...] | None = None
    encoder_attentions: tuple[Tensor, ...] | None = None
    text_model_output: Output | None = None  # of each tower, where there are two
    vision_model_output: Output | None = None
    scale: Tensor | None = None  # what the cosines of texts and pictures are multiplied by
    # in training, what regularisation pulls down: the mean square of the last layer's states, after dropout, and of
    # how much they change from one step to the next
    activation_penalty: Tensor | None = None
    temporal_penalty: Tensor | None = None

    def keys(self) -> list[str]:
        return [f.name for f in fields(self) if getattr(self, f.name) is not None]

    def values(self) -> list[Any]:
        return [getattr(self, name) for name in self.keys()]

    def items(self) -> list[tuple[str, Any]]:
        return [(name, getattr(self, name)) for name in self.keys()]

    def __getitem__(self, key: str | int | slice) -> Any:
        if isinstance(key, str):
            if isinstance(getattr(type(self), key, None), property) and getattr(self, key) is not None:
                return getattr(self, key)  # a second name
            if key not in self.keys():
                raise KeyError(f"{key!r} was not computed; there is: {', '.join(self.keys())}")
            return getattr(self, key)
        return tuple(self.values())[key]

    def __contains__(self, key: object) -> bool:
        return key in self.keys()

    def __iter__(self) -> Iterator[str]:
        return iter(self.keys())

    def __len__(self) -> int:
        return len(self.keys())

    @property
    def prediction_logits(self) -> Tensor | None:
        """The name BertForPreTraining users know."""
        return self.logits

    @property
    def sop_logits(self) -> Tensor | None:
        """The name AlbertForPreTraining users know."""
        return self.seq_relationship_logits
