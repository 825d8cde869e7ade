"""The options of one call of generate: read from keywords and a checkpoint's own, checked together, fitted to a model.

What options there are, and what each may be, stands in `clearhead/generation_options.py`.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from clearhead.errors import InputError, PromptTooLong
from clearhead.generation_options import FIELDS, SEARCH, WARPERS, GenerationFields, listing
from clearhead.messages import Message, say
from clearhead.models.config import Config
from clearhead.schema import check_names

__all__ = ["SEARCH", "WARPERS", "Options"]

log = logging.getLogger("clearhead")


@dataclass(frozen=True, kw_only=True)
class Options(GenerationFields):
    @classmethod
    def from_keywords(cls, keywords: dict[str, Any], stored: dict[str, Any] | None = None) -> Options:
        """What was asked for; `stored` (a checkpoint's generation_config.json) fills in what was not."""
        keywords = _named(keywords)
        filled = {
            name: value
            for name, value in (stored or {}).items()
            if name in FIELDS and name not in _NO_EFFECT and value not in _NEUTRAL.get(name, (None,))
        }
        searches = keywords.get("penalty_alpha", filled.get("penalty_alpha")) is not None
        if keywords.get("do_sample", filled.get("do_sample")) is not True:  # these count only when sampling
            dropped = set(WARPERS) - ({"top_k"} if searches else set())
            filled = {name: value for name, value in filled.items() if name not in dropped}
        if {"max_new_tokens", "max_length"} & set(keywords):  # a length asked for replaces every stored one
            filled = {name: v for name, v in filled.items() if name not in ("max_new_tokens", "max_length")}
            for minimum, maximum in (("min_new_tokens", "max_new_tokens"), ("min_length", "max_length")):
                low, high = filled.get(minimum), keywords.get(maximum)
                if isinstance(low, int) and isinstance(high, int) and low > high:
                    del filled[minimum]
        if filled.get("do_sample") is False and {*WARPERS, "seed"} & set(keywords):
            del filled["do_sample"]
        return cls(**(filled | keywords))

    @classmethod
    def for_call(cls, keywords: dict[str, Any], stored: dict[str, Any], config: Config) -> Options:
        """The same for a call of a model: fitted to its configuration. What has no effect is named in a warning."""
        options = cls.from_keywords(keywords, stored)
        for sentence in options.without_effect(keywords):
            log.warning("%s", sentence)
        options._check_tokens(keywords, config.vocab_size)
        return options.filled_in(config)

    def without_effect(self, keywords: dict[str, Any]) -> list[str]:
        """What was asked for and does nothing, as sentences. A file's own values are its own business."""
        requested = {name for name, value in _named(keywords).items() if value != FIELDS[name].default}
        sentences: list[str] = [
            say("options.no_effect", name=name, needs=needs)
            for name in FIELDS
            if name in requested and (needs := FIELDS[name].needs) and getattr(self, needs) == FIELDS[needs].default
        ]
        if {"max_length", "max_new_tokens"} <= requested:
            sentences.append(say("options.two_lengths"))
        return sentences

    def _check_tokens(self, keywords: dict[str, Any], vocab_size: int) -> None:
        """Ids that were asked for are ids of the model."""
        last = vocab_size - 1
        for name in _named(keywords).keys() & _TOKEN_IDS:
            for token in _ids_in(getattr(self, name)):
                if name == "eos_token_id" and not 0 <= token <= last:  # -1 is a way to say "never"
                    if token != -1:
                        log.warning("%s", say("options.end_never_written", token=token, last=last))
                elif not 0 <= token <= last:
                    raise InputError(say("options.unknown_token", name=name, token=token, last=last))

    @classmethod
    def not_done(cls, stored: dict[str, Any]) -> list[str]:
        """What a generation_config.json asks for and `generate` does not do."""
        known = FIELDS.keys() | _NO_EFFECT
        return sorted(n for n, v in stored.items() if n not in known and v not in _NEUTRAL.get(n, _NOTHING))

    def __post_init__(self) -> None:
        """Each value by itself, and then what cannot be asked for at once."""
        super().__post_init__()
        self._check_length()
        self._check_search()
        self._check_sampling()
        self._check_speed()

    def _check_length(self) -> None:
        if self.max_new_tokens is not None and self.min_new_tokens > self.max_new_tokens:
            raise InputError(self._least_above_most("min_new_tokens", "max_new_tokens"))
        if self.max_length is not None and self.min_length > self.max_length:
            raise InputError(self._least_above_most("min_length", "max_length"))

    def _least_above_most(self, minimum: str, maximum: str) -> Message:
        low, high = getattr(self, minimum), getattr(self, maximum)
        return say("generation.least_above_most", least=minimum, low=low, most=maximum, high=high)

    def _check_search(self) -> None:
        if self.num_beams > 1 and self.num_return_sequences > self.num_beams:
            counts = {"returned": self.num_return_sequences, "beams": self.num_beams}
            raise InputError(say("generation.more_answers_than_beams", **counts))
        if self.num_beams % self.num_beam_groups:
            raise InputError(say("generation.unequal_groups", beams=self.num_beams, groups=self.num_beam_groups))
        if self.num_beam_groups > 1 and (self.samples or self.force_words_ids):
            raise InputError(say("generation.groups_only_search"))
        if self.force_words_ids and self.num_beams == 1:
            raise InputError("force_words_ids needs room to choose: give num_beams of 2 or more.")
        if self.force_words_ids and self.samples:
            raise InputError("force_words_ids searches; it cannot sample. Drop one.")
        if self.num_beams == 1 and self.num_return_sequences > 1 and not self.samples:
            raise InputError(say("generation.one_greedy_answer"))

    def _check_sampling(self) -> None:
        shaping = [name for name in WARPERS if getattr(self, name) is not None]
        if self.penalty_alpha is not None:
            others = [name for name in shaping if name != "top_k"] + ["do_sample"] * bool(self.do_sample)
            others += ["num_beams"] * (self.num_beams > 1) + ["seed"] * (self.seed is not None)
            if others:
                raise InputError(say("generation.contrastive_without", other=others[0]))
            if self.top_k is None or self.top_k < 2:
                raise InputError(say("generation.contrastive_needs_top_k"))
        elif self.do_sample is False and shaping:
            raise InputError(say("generation.only_when_sampling", option=shaping[0]))

    def _check_speed(self) -> None:
        searches = self.num_beams > 1 or self.penalty_alpha is not None
        if self.speculative and searches:
            raise InputError(
                "Speculative decoding follows one text: it goes without num_beams and penalty_alpha. Drop one."
            )
        if self.assistant_model is not None and self.prompt_lookup_num_tokens is not None:
            raise InputError("Give assistant_model or prompt_lookup_num_tokens, and not both: one of them proposes.")
        if self.compile and self.cuda_graphs is False:
            raise InputError("compile prepares steps for recording: it goes with cuda_graphs. Drop one.")
        if (self.cuda_graphs or self.compile) and (searches or self.speculative):
            raise InputError(
                "cuda_graphs and compile record plain steps: they go without beams, penalty_alpha and assistants."
            )

    @property
    def samples(self) -> bool:
        if self.do_sample is not None:
            return self.do_sample
        if self.penalty_alpha is not None:
            return False
        return any(getattr(self, name) is not None for name in (*WARPERS, "seed"))

    @property
    def speculative(self) -> bool:
        return self.assistant_model is not None or self.prompt_lookup_num_tokens is not None

    def seeds(self, prompts: int) -> list[int] | None:
        """One seed for each row that is drawn, `num_return_sequences` of them for each prompt."""
        copies = self.num_return_sequences if self.num_beams == 1 else 1
        if self.seed is None:
            return None
        if isinstance(self.seed, int):
            return [self.seed + n for n in range(prompts * copies)]
        if len(self.seed) not in (prompts, prompts * copies):
            raise InputError(
                f"There are {len(self.seed)} seeds for {prompts} texts; give one each, or a single number."
            )
        if len(self.seed) == prompts * copies:
            return list(self.seed)
        return [seed + n for seed in self.seed for n in range(copies)]

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
        return pad if pad is not None and pad < config.vocab_size else next(iter(self.eos_ids(config)), 0)

    def token_budget(self, prompt_length: int, max_positions: int | None) -> int:
        """How many tokens to write after a prompt of this length; max_positions: the model's (None: no limit)."""
        if self.max_length is not None and self.max_new_tokens is None:
            wanted = self.max_length - prompt_length
            if wanted < 1:
                counts = {"count": prompt_length, "max_length": self.max_length}
                raise InputError(say("generation.past_max_length", **counts))
        else:
            wanted = self.max_new_tokens if self.max_new_tokens is not None else 50
        # The last token is written but never read, so it needs no position of its own; contrastive search reads it.
        available = wanted if max_positions is None else max_positions + (self.penalty_alpha is None) - prompt_length
        if available < 1:
            raise PromptTooLong(say("generation.no_room", count=prompt_length, positions=max_positions))
        return min(wanted, available)


def _named(keywords: dict[str, Any]) -> dict[str, Any]:
    """What was asked for, by the names of the table; None asks for nothing."""
    keywords = {_ALIASES.get(name, name): value for name, value in keywords.items()}
    check_names(keywords, FIELDS, "generate has no option")
    return {name: value for name, value in keywords.items() if value is not None}


def _ids_in(value: Any) -> Iterator[int]:
    """All ids in an id, or in lists of them."""
    if isinstance(value, int):
        yield value
    else:
        for item in value or ():
            yield from _ids_in(item)


Options.__doc__ = listing()

# Options that hold token ids; what sequence_bias holds is read by its processor.
_TOKEN_IDS = {
    name for name, field in FIELDS.items() if field.group == "tokens" and name.endswith(("_id", "_ids", "_tokens"))
}

_ALIASES = {"beam_size": "num_beams", "top_beams": "num_return_sequences"}  # the words of the papers
# keys of generation_config.json that do not change which tokens are written
_NO_EFFECT = frozenset(
    "bos_token_id transformers_version use_cache output_attentions output_hidden_states output_scores output_logits "
    "return_dict_in_generate cache_implementation cache_config max_matches max_matching_ngram_size "
    "num_assistant_tokens num_assistant_tokens_schedule assistant_confidence_threshold assistant_early_exit "
    "assistant_lookbehind target_lookbehind prompt_lookup_num_tokens disable_compile compile_config is_assistant "
    "remove_invalid_values low_memory".split()
)
_NOTHING: tuple[Any, ...] = (None, False, [], {}, 0)
_NEUTRAL: dict[str, tuple[Any, ...]] = {  # values in a file that ask for nothing
    "typical_p": (None, 1.0),
    "top_k": (None, 0),
    "min_p": (None, 0.0),
    "epsilon_cutoff": (None, 0.0),
    "eta_cutoff": (None, 0.0),
    "penalty_alpha": (None, 0.0),
    "encoder_repetition_penalty": (None, 1.0),
}
