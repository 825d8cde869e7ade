"""What a configuration is: a dataclass with a field for each option, and the way from and to `config.json`.

Every key of a published config.json is one of: a field (honoured); inert (it cannot change what is computed);
or fixed (known, and refused unless it has the one value that Clearhead implements). Any other key is refused by
name, so that no option is ever ignored in silence.
"""

from __future__ import annotations

import dataclasses
import typing
from dataclasses import MISSING, dataclass, field, replace
from functools import cache
from typing import Any, ClassVar, Self

from clearhead.errors import ConfigError, did_you_mean
from clearhead.generation_options import CONFIG_KEYS
from clearhead.schema import Field, fields_of

# Keys that say how something was made, stored or sampled. They do not change what the network computes.
INERT = CONFIG_KEYS | frozenset(  # and what `generate` does unless told otherwise, which older checkpoints keep here
    """
    model_type architectures transformers_version clearhead_version torch_dtype dtype auto_map name_or_path
    use_cache use_return_dict return_dict output_attentions output_hidden_states output_scores torchscript
    use_bfloat16 chunk_size_feed_forward gradient_checkpointing attn_implementation tokenizer_class
    task_specific_params finetuning_task num_labels prefix output_past label_smoothing xla_device
    tie_last_hidden_states experts_implementation return_dict_in_generate tf_legacy_loss
    sentence_transformers sbert_ce_default_activation_function
    """.split()
)

# Names that transformers accepts in every family, however the family spells them itself.
_COMMON_NAMES = {"hidden_size", "num_hidden_layers", "num_attention_heads", "max_position_embeddings"}

# What a save says itself.
_WRITTEN_ANEW = frozenset(
    "model_type architectures transformers_version torch_dtype dtype auto_map name_or_path num_labels".split()
)

# Keys every family knows, with the one value that leaves the network as published.
FIXED: dict[str, tuple[Any, ...]] = {
    "is_encoder_decoder": (False,),
    "tie_encoder_decoder": (False,),
    "cross_attention_hidden_size": (None,),
    "pruned_heads": ({}, None),
    "quantization_config": (None,),
    "per_layer_config": (None, {}),
    "adapters": (None, {}),
    "head_dim": (None,),
    "sliding_window": (None,),
    "rope_scaling": (None,),
    "rope_parameters": (None,),
}


@dataclass(kw_only=True)
class Config:
    """What every family shares: it reads a published file strictly, and its labels may have names.

    It knows no vocabulary and no heads; what models of tokens share is in `token_config.py`. A family adds its own
    fields and says how its published keys are spelt.
    """

    family: ClassVar[str]
    # our field -> the published key, where they differ
    published: ClassVar[dict[str, str]] = {}
    # further spellings of a published key that old files carry: spelling -> published key
    also_spelt: ClassVar[dict[str, str]] = {}
    inert: ClassVar[frozenset[str]] = frozenset()
    # published key -> the values that are implemented; it may be a field, such as one that the parent honours
    fixed: ClassVar[dict[str, tuple[Any, ...]]] = {}

    id2label: dict[int, str] = field(default_factory=lambda: {0: "LABEL_0", 1: "LABEL_1"})
    problem_type: str | None = None
    # keys of config.json that change nothing here, kept so that a saved folder still has them
    also_stored: dict[str, Any] = field(default_factory=dict, repr=False, compare=False)

    def __post_init__(self) -> None:
        cls: Any = type(self)
        for name, known in _schema(cls).items():
            value = getattr(self, name)
            known.check(value, error=ConfigError)
            if value not in self.fixed.get(known.name, (value,)):
                raise ConfigError(self._unknown_value(known.name, value))
        kinds = (None, "regression", "single_label_classification", "multi_label_classification")
        if self.problem_type not in kinds:
            raise ConfigError(f"problem_type is {self.problem_type!r}; it can be one of {', '.join(kinds[1:])}.")

    def _at_least(self, least: float, *names: str) -> None:
        for name in names:
            value = getattr(self, name)
            if value is not None and value < least:
                raise ConfigError(f"{self._key(name)} is {value}; it must be at least {least:g}.")

    def _probabilities(self, *names: str) -> None:
        for name in names:
            value = getattr(self, name)
            if value is not None and not 0 <= value <= 1:
                raise ConfigError(f"{self._key(name)} is {value}; a dropout rate lies between 0 and 1.")

    @classmethod
    def _key(cls, name: str) -> str:
        return cls.published.get(name, name)

    @classmethod
    def _unknown_value(cls, key: str, value: Any) -> str:
        return f"This {cls.family} configuration sets {key} = {value!r}, which Clearhead does not implement."

    @property
    def num_labels(self) -> int:
        return len(self.id2label)

    @property
    def label2id(self) -> dict[str, int]:
        return {label: n for n, label in self.id2label.items()}

    @classmethod
    def from_dict(cls, raw: dict[str, Any], ignore: typing.Iterable[str] = ()) -> Self:
        """Read a config.json. `ignore` names keys that the caller knows to be harmless."""
        fields = {f.name for f in dataclasses.fields(cls)}
        by_key = {cls._key(name): name for name in fields}
        inert = INERT | cls.inert | set(ignore)
        fixed = {**FIXED, **cls.fixed}
        values: dict[str, Any] = {}
        for key, value in raw.items():
            key_now = cls.also_spelt.get(key, key)
            name = by_key.get(key_now) or (key_now if key_now in fields & _COMMON_NAMES else None)
            if name is not None:
                if name in values and values[name] != value:
                    raise ConfigError(
                        f"The configuration gives {cls._key(name)} twice, as {values[name]!r} and (by the name {key}) "
                        f"as {value!r}. Remove one of them."
                    )
                values[name] = value
            elif key in inert or key.startswith("_") or key == "label2id":
                continue
            elif key in fixed:
                if value not in fixed[key]:
                    raise ConfigError(cls._unknown_value(key, value))
            elif value is not None:
                raise ConfigError(
                    f"This {cls.family} configuration has an option that Clearhead does not know: {key} = {value!r}."
                    f"{did_you_mean(key, sorted(by_key.keys() | fields))} If it does not change what the model "
                    f'computes, load with ignore_options=["{key}"].'
                )
        values.pop("label2id", None)
        values["id2label"] = _labels(raw)
        values["also_stored"] = {k: v for k, v in raw.items() if k in (INERT | cls.inert) - _WRITTEN_ANEW}
        values = {n: v for n, v in values.items() if v is not None or n not in _required(cls)}
        missing = _required(cls) - set(values)
        if missing:
            raise ConfigError(
                f"The {cls.family} configuration lacks {', '.join(sorted(cls._key(m) for m in missing))}."
            )
        return cls(**values)

    def __getattr__(self, name: str) -> Any:
        """Options by their published names too: `config.n_embd`."""
        for field_name, key in type(self).published.items():
            if key == name:
                return getattr(self, field_name)
        raise AttributeError(f"The {self.family} configuration has no option {name!r}.")

    def to_dict(self) -> dict[str, Any]:
        """The published form, with every field written out."""
        out = {self._key(f.name): getattr(self, f.name) for f in dataclasses.fields(self) if f.name != "also_stored"}
        out = {**self.also_stored, **out}
        out["id2label"] = {str(n): label for n, label in self.id2label.items()}
        out["label2id"] = self.label2id
        return out


@cache
def _schema(cls: Any) -> dict[str, Field]:
    """The fields by our names, each with its published key for a name, and no default: None passes where it may."""
    return {n: replace(f, name=cls._key(n), default=MISSING) for n, f in fields_of(cls).items()}


def _required(cls: type[Config]) -> set[str]:
    return {
        f.name
        for f in dataclasses.fields(cls)
        if f.default is dataclasses.MISSING and f.default_factory is dataclasses.MISSING
    }


def _labels(raw: dict[str, Any]) -> dict[int, str]:
    labels = raw.get("id2label")
    if labels is None:
        count = raw.get("num_labels")
        count = 2 if count is None else count
        if not isinstance(count, int) or isinstance(count, bool) or count < 1:
            raise ConfigError(f"num_labels is {count!r}; it must be a whole number of at least 1.")
        return {n: f"LABEL_{n}" for n in range(count)}
    try:
        named = {int(n): str(label) for n, label in labels.items()}
    except (AttributeError, TypeError, ValueError):
        raise ConfigError('id2label must map label numbers to names, such as {"0": "negative"}.') from None
    if sorted(named) != list(range(len(named))) or not named:
        raise ConfigError(f"id2label must number its labels 0, 1, 2 …; it has {sorted(named)}.")
    if raw.get("num_labels") not in (None, len(named)):
        raise ConfigError(f"num_labels is {raw['num_labels']}, but id2label names {len(named)}. Correct one of them.")
    return dict(sorted(named.items()))
