"""What a configuration is: a dataclass with a field for each option, and the way from and to `config.json`.

Every key of a published config.json is one of: a field (honoured); inert (it cannot change what is computed); fixed,
or known from related architectures to change the numbers (refused by name, unless its value leaves the network as it
is); or unknown, which is kept, and named in a warning when the weights fit without it (`strict` refuses it). No option
is ever ignored in silence.
"""

from __future__ import annotations

import dataclasses
import typing
from dataclasses import MISSING, dataclass, field, replace
from functools import cache
from typing import Any, ClassVar, Self

from clearhead.errors import ConfigError, near
from clearhead.models.config_keys import WRITTEN_ANEW, advice, effect
from clearhead.models.labels import read_labels
from clearhead.schema import Field, fields_of, shown

# Names that transformers accepts in every family, however the family spells them itself.
_COMMON_NAMES = {"hidden_size", "num_hidden_layers", "num_attention_heads", "max_position_embeddings"}

LARGEST = 2**31  # no whole number reaches it
PROBLEMS = (None, "regression", "single_label_classification", "multi_label_classification")

_FIRST_WEIGHTS = ("init_std", "initializer_range")

# What a configuration knows about its file; no options of the network.
NO_OPTIONS = frozenset({"also_stored", "unknown", "odd", "spelt"})


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
    # keys of config.json that no field holds, kept so that a saved folder still has them
    also_stored: dict[str, Any] = field(default_factory=dict, repr=False, compare=False)
    # those among them that Clearhead does not know
    unknown: list[str] = field(default_factory=list, repr=False, compare=False)
    # what contradicts itself or means nothing in it, in sentences
    odd: list[str] = field(default_factory=list, repr=False, compare=False)
    # field -> the key that config.json had for it, where that is another than the published one
    spelt: dict[str, str] = field(default_factory=dict, repr=False, compare=False)

    def __post_init__(self) -> None:
        cls: Any = type(self)
        for name, known in _schema(cls).items():
            value = getattr(self, name)
            (replace(known, name=self.spelt[name]) if name in self.spelt else known).check(value, error=ConfigError)
            if isinstance(value, int) and abs(value) >= LARGEST:
                raise ConfigError(f"{self._spelling(name)} is {value}, larger than any model has it.")
            if value not in self.fixed.get(known.name, (value,)):
                raise ConfigError(self._unknown_value(known.name, value))
        self._at_least(0, *(name for name in _schema(cls) if name.endswith(("_eps", "_epsilon"))))
        if self.problem_type not in PROBLEMS:
            raise ConfigError(self._no_problem(self.problem_type))

    def _at_least(self, minimum: float, *names: str) -> None:
        for name in names:
            value = getattr(self, name)
            if value is not None and value < minimum:
                raise ConfigError(f"{self._spelling(name)} is {value}; it must be at least {minimum:g}.")

    def _probabilities(self, *names: str) -> None:
        for name in names:
            value = getattr(self, name)
            if value is not None and not 0 <= value <= 1:
                raise ConfigError(f"{self._spelling(name)} is {value}; a dropout rate lies between 0 and 1.")

    @classmethod
    def _key(cls, name: str) -> str:
        return cls.published.get(name, name)

    @classmethod
    def _by_key(cls) -> dict[str, str]:
        """Published key -> field."""
        return {cls._key(f.name): f.name for f in dataclasses.fields(cls) if f.name not in NO_OPTIONS}

    def _spelling(self, name: str) -> str:
        """What whoever wrote the file calls it, to be blamed by that name."""
        return self.spelt.get(name) or self._key(name)

    @classmethod
    def _unknown_value(cls, key: str, value: Any) -> str:
        return (
            f"This {cls.family} configuration sets {key} = {shown(value)}, which Clearhead does not implement."
            f"{advice(key)}"
        )

    @staticmethod
    def _no_problem(name: Any) -> str:
        return f"problem_type is {shown(name)}; it can be one of {', '.join(filter(None, PROBLEMS))}."

    @property
    def num_labels(self) -> int:
        return len(self.id2label)

    @property
    def label2id(self) -> dict[str, int]:
        return {label: n for n, label in self.id2label.items()}

    @classmethod
    def from_dict(cls, raw: typing.Mapping[str, Any], ignore: typing.Iterable[str] = (), strict: bool = False) -> Self:
        """Read a config.json.

        ignore   keys that the caller knows to be harmless
        strict   refuse a key that Clearhead does not know, which is otherwise kept in `unknown`, and what is `odd`
        """
        ignore = set(ignore)
        values: dict[str, Any] = {}
        spelt: dict[str, str] = {}
        others = {}
        for key, value in raw.items():
            name = cls.field_of(key)
            if name is None:
                others[key] = value
            elif name in values and values[name] != value:
                raise ConfigError(
                    f"The configuration gives {cls._key(name)} twice, as {shown(values[name])} and (by the name {key}) "
                    f"as {shown(value)}. Remove one of them."
                )
            else:
                values[name] = value
                spelt |= {name: key} if key != cls._key(name) else {}
        unknown = cls._read_others({k: v for k, v in others.items() if k not in ignore}, values)
        if unknown and strict:
            raise ConfigError(cls._refusal(unknown[0], raw[unknown[0]]))
        labels, odd = read_labels(raw)
        if isinstance(name := values.get("problem_type"), str) and name not in PROBLEMS:
            values["problem_type"] = None
            odd.append(f"{cls._no_problem(name)} The number of labels decides.")
        if odd and strict:
            raise ConfigError(odd[0])
        values |= {"id2label": labels, "unknown": unknown, "odd": odd, "spelt": spelt}
        values["also_stored"] = {k: v for k, v in others.items() if k not in WRITTEN_ANEW and not k.startswith("_")}
        values = {n: _without_null(cls, n, v) for n, v in values.items()}
        values = {n: v for n, v in values.items() if v is not MISSING}
        missing = _required(cls) - set(values)
        if missing:
            raise ConfigError(
                f"The {cls.family} configuration lacks {', '.join(sorted(cls._key(m) for m in missing))}."
            )
        return cls(**values)

    @classmethod
    def field_of(cls, key: str) -> str | None:
        """The field that a key of config.json sets, by whatever name; None where it sets none."""
        key, known = cls.also_spelt.get(key, key), cls._by_key()
        name = known.get(key)
        return key if name is None and key in known.values() and key in _COMMON_NAMES else name

    @classmethod
    def _read_others(cls, others: dict[str, Any], values: dict[str, Any]) -> list[str]:
        """Of the keys that set no field: refuse what would change the numbers, and name what is not known."""
        heads, width = (values.get(n, getattr(cls, n, None)) for n in ("num_attention_heads", "hidden_size"))
        effects = {}
        for key, value in others.items():
            if key in cls.fixed:
                effects[key] = "none" if value is None or value in cls.fixed[key] else "refused"
            elif key not in cls.inert and key != "label2id":
                effects[key] = effect(key, value, heads, width)
            if effects.get(key) == "refused":
                raise ConfigError(cls._unknown_value(key, value))
        return [key for key, does in effects.items() if does == "unknown"]

    @classmethod
    def _refusal(cls, key: str, value: Any) -> str:
        meant = f" Did you mean {near_key}?" if (near_key := cls.near(key)) else ""
        return (
            f"This {cls.family} configuration has an option that Clearhead does not know: {key} = {shown(value)}."
            f'{meant} If it does not change what the model computes, load with ignore_options=["{key}"].'
        )

    @classmethod
    def near(cls, key: str) -> str | None:
        """The option that whoever wrote this key probably meant."""
        known = {*cls._by_key(), *cls.also_spelt, *(name for name in _COMMON_NAMES if cls.field_of(name))}
        name = cls._key(key)  # what it is called here is not always what it is called there
        return next(iter(near(name, sorted(known), count=1, cutoff=0.75)), None)

    def unknown_option(self, key: str) -> str:
        """One of the keys that are not known, for a sentence that names them."""
        meant = f" (did you mean {near_key}?)" if (near_key := self.near(key)) else ""
        return f"{key} = {shown(self.also_stored[key])}{meant}"

    def check_known(self, keys: typing.Iterable[str]) -> None:
        """Refuse those of these keys that Clearhead does not know: somebody wrote them to be obeyed."""
        for key in keys:
            if key in self.unknown:
                raise ConfigError(self._refusal(key, self.also_stored[key]))

    def __getattr__(self, name: str) -> Any:
        """Options by their published names too: `config.n_embd`."""
        for field_name, key in type(self).published.items():
            if key == name:
                return getattr(self, field_name)
        raise AttributeError(f"The {self.family} configuration has no option {name!r}.")

    @classmethod
    def with_vocabulary(
        cls, values: typing.Mapping[str, Any], rows: int, special: typing.Mapping[str, int]
    ) -> dict[str, Any]:
        """The published values of a new model, with what its tokenizer decides.

        rows      of the table of tokens
        special   bos_token_id and so on
        """
        return {cls._key("vocab_size"): rows, **values, **special}

    def to_dict(self) -> dict[str, Any]:
        """The published form, with every field written out."""
        out = {self._key(f.name): getattr(self, f.name) for f in dataclasses.fields(self) if f.name not in NO_OPTIONS}
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


def _without_null(cls: Any, name: str, value: Any) -> Any:
    """What null stands for in a field that has to have a value: the default where nothing but training would show it,
    and "no" of a switch, as in transformers. Anything else is refused when it is checked."""
    if value is not None or name in NO_OPTIONS:
        return value
    kind = _schema(cls)[name].type
    if name in _required(cls) or (kind is float and ("drop" in name or name in _FIRST_WEIGHTS)):
        return MISSING
    return False if kind is bool else value
