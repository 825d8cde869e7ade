"""CLIP: a text tower and a vision tower whose last vectors are compared, so that a text lies near its picture."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Self

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from clearhead.errors import ConfigError, InputError
from clearhead.models import clip_text, clip_vision
from clearhead.models.capture import by_layer, captured, hidden_states_in
from clearhead.models.checkpoint import CheckpointMap, Entry, linear, one
from clearhead.models.clip_layers import ProjectionHead, init_tower
from clearhead.models.clip_text import ClipTextConfig
from clearhead.models.clip_vision import ClipVisionConfig, ClipVisionModel, PatchMean
from clearhead.models.config import Config
from clearhead.models.family import Family
from clearhead.models.heads import Head, HeadInputs, SequenceHead
from clearhead.models.model import Model
from clearhead.models.output import Output
from clearhead.nn import Stack
from clearhead.nn.init import init_normal
from clearhead.nn.tracing import tap
from clearhead.schema import shown

MOST_SCALE = math.log(100)  # above it, training was seen to run away


@dataclass(kw_only=True)
class ClipConfig(Config):
    """Both towers' configurations, each as it would stand alone; `projection_dim` here is what counts."""

    family: ClassVar[str] = "clip"
    towers: ClassVar[dict[str, type[Config]]] = {"text_config": ClipTextConfig, "vision_config": ClipVisionConfig}

    text_config: ClipTextConfig = field(default_factory=ClipTextConfig)
    vision_config: ClipVisionConfig = field(default_factory=ClipVisionConfig)
    projection_dim: int = 512
    logit_scale_init_value: float = 2.6592
    initializer_factor: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        self._at_least(1, "projection_dim")

    @classmethod
    def from_dict(cls, raw: Mapping[str, Any], ignore: Iterable[str] = (), strict: bool = False) -> Self:
        """As every configuration; and the towers' own, of which old files have a second copy that counts."""
        options, ignore = dict(raw), list(ignore)
        for name, tower in cls.towers.items():
            first, second = options.pop(name, None), options.pop(f"{name}_dict", None)
            values = first if second is None else second
            if isinstance(values, tower):
                options[name] = values
                continue
            if not isinstance(values, Mapping | None):
                raise ConfigError(f"{name} is {shown(values)}; it must be a table of options.")
            options[name] = tower.from_dict(values or {}, ignore, strict)
        config = super().from_dict(options, ignore, strict)
        for name in cls.towers:
            inner = getattr(config, name)
            config.unknown += [f"{name}.{key}" for key in inner.unknown]
            config.odd += inner.odd
        return config

    @classmethod
    def with_vocabulary(cls, values: Mapping[str, Any], rows: int, special: Mapping[str, int]) -> dict[str, Any]:
        """It is the text tower's."""
        own = dict(values.get("text_config") or {})
        return {**values, "text_config": {"vocab_size": rows} | own | dict(special)}

    @property
    def vocab_size(self) -> int:
        return self.text_config.vocab_size

    @property
    def hidden_size(self) -> int:
        """Of the text tower, for whoever goes by one width."""
        return self.text_config.hidden_size

    def unknown_option(self, key: str) -> str:
        tower, _, name = key.partition(".")
        return f"{tower}.{getattr(self, tower).unknown_option(name)}" if name else super().unknown_option(key)

    def to_dict(self) -> dict[str, Any]:
        towers = {name: {"model_type": tower.family} for name, tower in self.towers.items()}
        return super().to_dict() | {name: own | getattr(self, name).to_dict() for name, own in towers.items()}


class ContrastiveHead(Head):
    """Every text with every picture: the cosine of their vectors times a learned scale. A batch's own pairs are right.

    What is given of the two is answered: of texts alone, or of pictures alone, their vectors.
    """

    answers = "similarity"
    taps = ("logits",)

    def __init__(self, config: ClipConfig) -> None:
        super().__init__()
        self.text = clip_text.projection(config.text_config, config.projection_dim)
        self.vision = clip_vision.projection(config.vision_config, config.projection_dim)
        self.logit_scale = nn.Parameter(torch.tensor([float(config.logit_scale_init_value)]))  # a row of one

    def scale(self) -> Tensor:
        """What multiplies the cosines. Training keeps it at 100 or below; a file's own is taken as it is."""
        if not self.training:
            return self.logit_scale.exp()
        excess = (self.logit_scale - MOST_SCALE).clamp(min=0).detach()  # it still learns, to come back
        return (self.logit_scale - excess).exp()

    @torch.no_grad()
    def hold_scale(self) -> None:
        """Between two steps of training: the number itself goes no further."""
        self.logit_scale.clamp_(max=MOST_SCALE)

    def compare(self, text: Tensor, images: Tensor, scale: Tensor) -> Tensor:
        """(texts, pictures), from vectors of unit length."""
        return tap(self, "logits", text @ images.t() * scale)


def contrastive_loss(logits: Tensor) -> Tensor:
    """The mean of two cross-entropies: which picture is a text's, and which text is a picture's."""
    if logits.shape[0] != logits.shape[1]:
        raise InputError(
            f"The loss wants pairs, and there are {logits.shape[0]} texts and {logits.shape[1]} pictures. Give as many "
            "of each, or leave return_loss out."
        )
    own = torch.arange(len(logits), device=logits.device)
    return (F.cross_entropy(logits.float(), own) + F.cross_entropy(logits.t().float(), own)) / 2


def unit_length(vectors: Tensor) -> Tensor:
    return vectors / vectors.pow(2).sum(-1, keepdim=True).sqrt()


class ClipModel(Model):
    """Two stacks and a head that compares what they say. Of each tower alone, the pooled vector is the projected one,
    as `transformers` gives it."""

    tap_names = {"head": ""}
    head: ContrastiveHead

    def __init__(self, config: ClipConfig) -> None:
        super().__init__(config, ContrastiveHead(config))
        self.text = clip_text.tower(config.text_config)
        self.vision = clip_vision.tower(config.vision_config)

    @property
    def stacks(self) -> dict[str, Stack]:
        return {"text": self.text, "vision": self.vision}

    def forward(
        self,
        input_ids: Tensor | None = None,  # (texts, time)
        pixel_values: Tensor | None = None,  # (pictures, channels, height, width)
        attention_mask: Tensor | None = None,
        position_ids: Tensor | None = None,
        return_loss: bool | None = None,
        interpolate_pos_encoding: bool = False,
        output_hidden_states: bool = False,
        output_attentions: bool = False,
    ) -> Output:
        if input_ids is None and pixel_values is None:
            raise InputError("Give the model input_ids (texts), pixel_values (pictures), or both.")
        if return_loss and (input_ids is None or pixel_values is None):
            raise InputError("The loss compares texts with pictures: give both input_ids and pixel_values.")
        out = Output()
        with captured(self, output_hidden_states, output_attentions) as seen:
            if input_ids is not None:
                hidden = self.text(input_ids, attention_mask=attention_mask, position_ids=position_ids)
                projected = self.head.text(hidden, HeadInputs(input_ids)).text_embeds
                out.text_model_output = Output(last_hidden_state=hidden, pooler_output=projected)
                out.text_embeds = unit_length(projected)
            if pixel_values is not None:
                hidden = self.vision.run(self.vision.embed(pixel_values, interpolate=interpolate_pos_encoding))
                projected = self.head.vision(hidden, HeadInputs()).image_embeds
                out.vision_model_output = Output(last_hidden_state=hidden, pooler_output=projected)
                out.image_embeds = unit_length(projected)
        if seen is not None:
            for side, tower in (("text.", out.text_model_output), ("vision.", out.vision_model_output)):
                if tower is not None:
                    tower.hidden_states = hidden_states_in(seen, side, None) if output_hidden_states else None
                    tower.attentions = by_layer(seen, "attention.weights", side) if output_attentions else None
        if out.text_embeds is not None and out.image_embeds is not None:
            out.scale = self.head.scale()
            out.logits_per_text = self.head.compare(out.text_embeds, out.image_embeds, out.scale)
            out.logits_per_image = out.logits_per_text.t()
            out.loss = contrastive_loss(out.logits_per_text) if return_loss else None
        return out


class LabelSimilarityHead(Head):
    """A picture compared with texts that stay: their vectors are the labels."""

    answers = "label"
    taps = ("logits",)
    tap_names = {"projection": ""}

    def __init__(self, projection: ProjectionHead, vectors: Tensor, scale: Tensor) -> None:
        super().__init__()
        self.projection = projection
        self.vectors, self.scale = vectors.detach(), scale.detach()  # (labels, width), and one number

    def forward(self, hidden: Tensor, inputs: HeadInputs) -> Output:
        images = unit_length(self.projection(hidden, inputs).image_embeds)
        return Output(logits=tap(self, "logits", images @ self.vectors.to(images).t() * self.scale.to(images)))


def with_labels(model: ClipModel, labels: list[str], vectors: Tensor) -> ClipVisionModel:
    """The vision tower of a model, which keeps its weights, as a classifier.

    vectors   (labels, width), of unit length
    """
    config = replace(model.config, id2label=dict(enumerate(labels)), problem_type="single_label_classification")
    head = LabelSimilarityHead(model.head.vision, vectors, model.head.scale())
    classifier = ClipVisionModel(config, model.vision, head)
    classifier.family, classifier.task = model.family, "image-classification"
    return classifier.train(model.training)


def build(config: ClipConfig, task: str) -> Model:
    if task == "image-classification":
        head = SequenceHead(config, PatchMean(), width=config.vision_config.hidden_size)
        return ClipVisionModel(config, clip_vision.tower(config.vision_config), head)
    return ClipModel(config)


@torch.no_grad()
def init(config: ClipConfig, module: nn.Module) -> None:
    if isinstance(module, ClipModel):
        for text_part in (module.text, module.head.text):
            init_tower(config.text_config, text_part)
        for vision_part in (module.vision, module.head.vision):
            clip_vision.init(config.vision_config, vision_part)
    elif isinstance(module, ClipVisionModel):
        clip_vision.init(config.vision_config, module.stack)
        init(config, module.head)
    else:  # the labels, where a tower is trained to tell them
        init_normal(module, config.vision_config.hidden_size**-0.5 * config.initializer_factor)
    for part in module.modules():
        if isinstance(part, ContrastiveHead):
            part.logit_scale.fill_(config.logit_scale_init_value)


def checkpoint_map(config: ClipConfig, task: str) -> CheckpointMap:
    vision = clip_vision.tower_entries(
        config.vision_config, "vision" if task == "features" else "stack", "vision_model."
    )
    skipped = (r"(text|vision)_model\.embeddings\.position_ids",)
    if task == "image-classification":
        entries = [*vision, *linear("head.output", "classifier", in_body=False)]
        # no label is told from the class vector, but the class in transformers has its norm all the same
        name, width = "vision_model.post_layernorm", config.vision_config.hidden_size
        unread = {f"{name}.weight": lambda: torch.ones(width), f"{name}.bias": lambda: torch.zeros(width)}
        return CheckpointMap(tuple(entries), skipped=(*skipped, rf"{name}\.\w+"), computed=unread)
    entries = [
        *clip_text.tower_entries(config.text_config, "text", "text_model."),
        *vision,
        *linear("head.vision.pooler.norm", "vision_model.post_layernorm"),
        one("head.text.output.weight", "text_projection.weight"),
        one("head.vision.output.weight", "visual_projection.weight"),
        Entry(("head.logit_scale",), ("logit_scale",), scalar=True),
    ]
    return CheckpointMap(tuple(entries), skipped=skipped)


_LARGE = {
    "text_config": ClipTextConfig(
        hidden_size=768, intermediate_size=3072, num_attention_heads=12, projection_dim=768, eos_token_id=2
    ),
    "projection_dim": 768,
}


def _large_vision(image_size: int) -> ClipVisionConfig:
    return ClipVisionConfig(
        hidden_size=1024, intermediate_size=4096, num_hidden_layers=24, num_attention_heads=16, patch_size=14,
        image_size=image_size, projection_dim=768,
    )  # fmt: skip


FAMILY = Family(
    name="clip",
    title="CLIP",
    config=ClipConfig,
    build=build,
    init=init,
    checkpoint_map=checkpoint_map,
    architectures={"features": "CLIPModel", "image-classification": "CLIPForImageClassification"},
    default_task="features",
    modality="text-image",
    parent="clip_text_model",
    presets={
        "clip-vit-base-patch32": {},
        "clip-vit-base-patch16": {"vision_config": ClipVisionConfig(patch_size=16)},
        "clip-vit-large-patch14": {**_LARGE, "vision_config": _large_vision(224)},
        "clip-vit-large-patch14-336": {**_LARGE, "vision_config": _large_vision(336)},
    },
)
