"""What can be asked of a generation, checked once, before anything runs."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, Literal

from clearhead.errors import InputError, did_you_mean
from clearhead.models.config import Config


@dataclass(frozen=True, kw_only=True)
class Options:
    """
    max_new_tokens, max_length    how much to write; max_length counts the prompt too
    do_sample                     draw at random rather than take the likeliest. None: yes, if temperature, top_k,
                                  top_p or seed is given
    num_beams                     how many hypotheses to follow (the papers' beam_size)
    num_return_sequences          how many to return (top_beams); with sampling: how many to draw
    length_penalty                beams are ranked by log-probability / length ** length_penalty
    early_stopping                True: stop at num_beams finished ones; False: when none is likely to get better;
                                  "never": when none can get better
    decoder_start_token_id        what an encoder–decoder starts from; default: the configuration's
    forced_bos_token_id           what must come right after a single start token (a language, for translators)
    forced_eos_token_id           what must come last where the length runs out; [] for nothing
    bad_words_ids                 runs of tokens that are never written; [] for none. These three default to what
                                  the configuration says
    """

    max_new_tokens: int | None = None
    max_length: int | None = None
    min_new_tokens: int = 0
    do_sample: bool | None = None
    temperature: float | None = None
    top_k: int | None = None
    top_p: float | None = None
    repetition_penalty: float = 1.0
    no_repeat_ngram_size: int = 0
    num_beams: int = 1
    num_return_sequences: int = 1
    length_penalty: float = 1.0
    early_stopping: bool | Literal["never"] = False
    eos_token_id: int | list[int] | None = None
    pad_token_id: int | None = None
    decoder_start_token_id: int | None = None
    forced_bos_token_id: int | None = None
    forced_eos_token_id: int | list[int] | None = None
    bad_words_ids: list[list[int]] | None = None
    seed: int | None = None

    @classmethod
    def from_keywords(cls, keywords: dict[str, Any], stored: dict[str, Any] | None = None) -> Options:
        """What was asked for; `stored` (a checkpoint's generation_config.json) fills in what was not."""
        known = [f.name for f in dataclasses.fields(cls)]
        for name in keywords:
            if name not in known:
                raise InputError(f"generate has no option {name!r}.{did_you_mean(name, known)}")
        keywords = {name: value for name, value in keywords.items() if value is not None}
        filled = {name: value for name, value in (stored or {}).items() if name in known and value is not None}
        if not keywords.get("do_sample", filled.get("do_sample")):  # these count only when sampling
            filled = {name: value for name, value in filled.items() if name not in ("temperature", "top_k", "top_p")}
        if {"max_new_tokens", "max_length"} & set(keywords):  # a length asked for replaces every stored one
            filled = {name: v for name, v in filled.items() if name not in ("max_new_tokens", "max_length")}
        if filled.get("do_sample") is False and {"temperature", "top_k", "top_p", "seed"} & set(keywords):
            del filled["do_sample"]
        return cls(**(filled | keywords))

    @classmethod
    def not_done(cls, stored: dict[str, Any]) -> list[str]:
        """What a generation_config.json asks for and `generate` does not do."""
        known = {f.name for f in dataclasses.fields(cls)}
        return sorted(
            n for n, v in stored.items() if n not in known | _NO_EFFECT and v not in _NEUTRAL.get(n, _NOTHING)
        )

    def __post_init__(self) -> None:
        self._at_least("max_new_tokens", 1)
        self._at_least("max_length", 1)
        self._at_least("min_new_tokens", 0)
        self._at_least("top_k", 1)
        self._at_least("num_beams", 1)
        self._at_least("num_return_sequences", 1)
        self._at_least("no_repeat_ngram_size", 0)
        self._at_least("decoder_start_token_id", 0)
        self._at_least("forced_bos_token_id", 0)
        if any(not isinstance(run, list | tuple) or not run for run in self.bad_words_ids or []):
            raise InputError(f"bad_words_ids is {self.bad_words_ids!r}; it must be a list of lists of token ids.")
        if self.seed is not None and not (_is_whole(self.seed) and abs(self.seed) < 2**63):
            raise InputError(f"seed is {self.seed!r}; it must be a whole number below 2 to the power of 63.")
        for eos in self.eos_token_id if isinstance(self.eos_token_id, list | tuple) else [self.eos_token_id]:
            if eos is not None and not _is_whole(eos):
                raise InputError(f"eos_token_id is {self.eos_token_id!r}; it is a token id or a list of them.")
        if self.temperature is not None and not self.temperature >= 1e-6:
            raise InputError(
                f"temperature is {self.temperature}; it must be at least 0.000001. For the likeliest token always, "
                "leave it out (greedy)."
            )
        if self.top_p is not None and not 0 < self.top_p <= 1:
            raise InputError(f"top_p is {self.top_p}; it is a share of probability above 0 and up to 1.")
        if not self.repetition_penalty > 0:
            raise InputError(f"repetition_penalty is {self.repetition_penalty}; it must be above 0 (1: none).")
        if self.max_new_tokens is not None and self.min_new_tokens > self.max_new_tokens:
            raise InputError(f"min_new_tokens ({self.min_new_tokens}) is above max_new_tokens ({self.max_new_tokens}).")
        if self.early_stopping not in (True, False, "never"):
            raise InputError(f'early_stopping is {self.early_stopping!r}; it can be True, False or "never".')
        if self.num_beams > 1 and self.num_return_sequences > self.num_beams:
            raise InputError(
                f"num_return_sequences ({self.num_return_sequences}) is above num_beams ({self.num_beams}): "
                "a beam search ends with num_beams hypotheses."
            )
        if self.num_beams == 1 and self.num_return_sequences > 1 and not self.samples:
            raise InputError(
                "Greedy decoding has one answer. For several, sample (top_k=40, …) or search with num_beams."
            )
        wants_chance = [name for name in ("temperature", "top_k", "top_p") if getattr(self, name) is not None]
        if self.do_sample is False and wants_chance:
            raise InputError(f"do_sample is False, but {wants_chance[0]} only matters when sampling. Drop one.")

    def _at_least(self, name: str, least: int) -> None:
        value = getattr(self, name)
        if value is not None and (not _is_whole(value) or value < least):
            raise InputError(f"{name} is {value!r}; it must be a whole number of at least {least}.")

    @property
    def samples(self) -> bool:
        if self.do_sample is not None:
            return self.do_sample
        return any(v is not None for v in (self.temperature, self.top_k, self.top_p, self.seed))

    def eos_ids(self, config: Config) -> list[int]:
        eos = self.eos_token_id if self.eos_token_id is not None else config.eos_token_id
        ids = [] if eos is None else [eos] if isinstance(eos, int) else list(eos)
        return [token for token in ids if 0 <= token < config.vocab_size]  # others can never be written

    def filled_in(self, config: Config) -> Options:
        """These options, with what the configuration says where they are silent."""
        names = ("decoder_start_token_id", "forced_bos_token_id", "forced_eos_token_id", "bad_words_ids")
        silent: dict[str, Any] = {name: getattr(config, name, None) for name in names if getattr(self, name) is None}
        return dataclasses.replace(self, **silent)

    def pad_id(self, config: Config) -> int:
        """What fills a finished row: the padding token, or else the end token, or else 0."""
        pad = self.pad_token_id if self.pad_token_id is not None else config.pad_token_id
        return pad if pad is not None else next(iter(self.eos_ids(config)), 0)

    def new_tokens(self, prompt: int, limit: int | None) -> int:
        """How many tokens to write after a prompt of this length, in a model with `limit` positions."""
        if self.max_length is not None and self.max_new_tokens is None:
            wanted = self.max_length - prompt
            if wanted < 1:
                raise InputError(f"The prompt has {prompt} tokens already, and max_length is {self.max_length}.")
        else:
            wanted = self.max_new_tokens if self.max_new_tokens is not None else 50
        # the last token is written but never read, so it needs no position of its own
        room = wanted if limit is None else limit + 1 - prompt
        if room < 1:
            raise InputError(
                f"The prompt has {prompt} tokens, and the model has {limit} positions: there is no room to write. "
                "Shorten the prompt."
            )
        return min(wanted, room)


# keys of generation_config.json that do not change which tokens are written
_NO_EFFECT = frozenset(
    "bos_token_id transformers_version use_cache output_attentions output_hidden_states output_scores output_logits "
    "return_dict_in_generate cache_implementation cache_config max_matches num_assistant_tokens "
    "num_assistant_tokens_schedule assistant_confidence_threshold prompt_lookup_num_tokens disable_compile "
    "remove_invalid_values renormalize_logits max_time low_memory".split()
)
_NOTHING: tuple[Any, ...] = (None, False, [], {}, 0)
_NEUTRAL: dict[str, tuple[Any, ...]] = {
    "typical_p": (None, 1.0),
    "num_beam_groups": (None, 1),
    "encoder_repetition_penalty": (None, 1.0),
    "min_length": (None, 0),
}


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
