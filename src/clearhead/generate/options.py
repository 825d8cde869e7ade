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
    How much
    max_new_tokens, max_length    how much to write; max_length counts the prompt too
    min_new_tokens, min_length    the end is forbidden before this
    eos_token_id                  the token, or tokens, that end a text; [] for none
    stop_strings                  texts that end it (needs a tokenizer; a loaded model has its own)

    By chance, or not
    do_sample                     draw at random rather than take the likeliest. None: yes, if one of these is given
    temperature                   above 1: bolder; below 1: safer
    top_k, top_p                  keep the k likeliest tokens; the likeliest that reach a share of the probability
    min_p                         keep tokens at least this share as likely as the likeliest
    typical_p                     keep those whose surprise is nearest to the expected, up to this share
    epsilon_cutoff, eta_cutoff    drop tokens below a probability; below one that follows the entropy
    seed                          the same draws again. One number: row n of the batch draws from seed + n, so that rows
                                  differ; a list gives each row its own. A row's draws do not depend on other rows

    Rules
    repetition_penalty            CTRL's: tokens already there get their scores divided by this
    presence_penalty,             subtract this from the score of a token that was written once or more; from that of a
    frequency_penalty             token, for each time it was written (of the new text, as the OpenAI API counts)
    no_repeat_ngram_size          no run of so many tokens twice
    encoder_repetition_penalty,   the same with respect to an encoder's text: above 1 keeps to its words; and no run of
    encoder_no_repeat_ngram_size  it is copied
    bad_words_ids                 runs of tokens that are never written; [] for none
    force_words_ids               runs that must be written (beam search; a list of alternatives counts as one)
    suppress_tokens,              tokens that are never written; or not at the first place
    begin_suppress_tokens
    sequence_bias                 {(tokens): what is added to the score of finishing this run}
    exponential_decay_length_penalty   (start, factor): after `start` new tokens the end grows likelier
    renormalize_logits            last of all, make the scores log-probabilities again (beams are ranked by them)
    forced_bos_token_id           what must come right after a single start token (a language, for translators)
    forced_eos_token_id           what must come last where the length runs out; [] for nothing
    grammar                       the new text must fit: clearhead.generate.Grammar.choices, .regex or .json

    Searching
    num_beams                     how many hypotheses to follow (the papers' beam_size)
    num_return_sequences          how many to return (top_beams); with sampling: how many to draw
    length_penalty                beams are ranked by log-probability / length ** length_penalty
    early_stopping                True: stop at num_beams finished ones; False: when none is likely to get better;
                                  "never": when none can get better
    num_beam_groups,              beams in groups; a group is charged this for each beam of the groups before it that
    diversity_penalty             chose the same token
    penalty_alpha                 contrastive search (with top_k): the weight against repeating a hidden state

    Speculative decoding: the same tokens, sooner
    assistant_model               a smaller model that proposes the next tokens
    prompt_lookup_num_tokens      propose by copying what followed the same words before
    num_assistant_tokens          how many tokens are proposed at a time

    What comes back
    return_dict_in_generate       a `Generation` instead of the tokens: with log-probabilities and reasons to stop
    output_scores, output_logits  keep the scores (after the rules) or logits (before them) of every step in it

    decoder_start_token_id        what an encoder–decoder starts from; default: the configuration's. So are the forced
                                  tokens and bad_words_ids
    cuda_graphs                   replay each step from a recording. None: where it is possible (a CUDA device)
    compile                       compile the layers before recording: some seconds once for each shape, then faster
    """

    max_new_tokens: int | None = None
    max_length: int | None = None
    min_new_tokens: int = 0
    min_length: int = 0
    eos_token_id: int | list[int] | None = None
    pad_token_id: int | None = None
    stop_strings: str | list[str] | None = None

    do_sample: bool | None = None
    temperature: float | None = None
    top_k: int | None = None
    top_p: float | None = None
    min_p: float | None = None
    typical_p: float | None = None
    epsilon_cutoff: float | None = None
    eta_cutoff: float | None = None
    seed: int | list[int] | None = None

    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    no_repeat_ngram_size: int = 0
    encoder_repetition_penalty: float = 1.0
    encoder_no_repeat_ngram_size: int = 0
    bad_words_ids: list[list[int]] | None = None
    force_words_ids: list[Any] | None = None
    suppress_tokens: list[int] | None = None
    begin_suppress_tokens: list[int] | None = None
    sequence_bias: Any = None
    exponential_decay_length_penalty: tuple[int, float] | None = None
    renormalize_logits: bool = False
    forced_bos_token_id: int | None = None
    forced_eos_token_id: int | list[int] | None = None
    grammar: Any = None

    num_beams: int = 1
    num_return_sequences: int = 1
    length_penalty: float = 1.0
    early_stopping: bool | Literal["never"] = False
    num_beam_groups: int = 1
    diversity_penalty: float = 0.0
    penalty_alpha: float | None = None

    assistant_model: Any = None
    prompt_lookup_num_tokens: int | None = None
    num_assistant_tokens: int = 5

    return_dict_in_generate: bool = False
    output_scores: bool = False
    output_logits: bool = False

    decoder_start_token_id: int | None = None
    cuda_graphs: bool | None = None
    compile: bool = False

    @classmethod
    def from_keywords(cls, keywords: dict[str, Any], stored: dict[str, Any] | None = None) -> Options:
        """What was asked for; `stored` (a checkpoint's generation_config.json) fills in what was not."""
        keywords = {_ALIASES.get(name, name): value for name, value in keywords.items()}
        known = [f.name for f in dataclasses.fields(cls)]
        for name in keywords:
            if name not in known:
                raise InputError(f"generate has no option {name!r}.{did_you_mean(name, known)}")
        keywords = {name: value for name, value in keywords.items() if value is not None}
        filled = {
            name: value
            for name, value in (stored or {}).items()
            if name in known and name not in _NO_EFFECT and value not in _NEUTRAL.get(name, (None,))
        }
        searches = keywords.get("penalty_alpha", filled.get("penalty_alpha")) is not None
        if keywords.get("do_sample", filled.get("do_sample")) is not True:  # these count only when sampling
            dropped = set(WARPERS) - ({"top_k"} if searches else set())
            filled = {name: value for name, value in filled.items() if name not in dropped}
        if {"max_new_tokens", "max_length"} & set(keywords):  # a length asked for replaces every stored one
            filled = {name: v for name, v in filled.items() if name not in ("max_new_tokens", "max_length")}
            for least, most in (("min_new_tokens", "max_new_tokens"), ("min_length", "max_length")):
                low, high = filled.get(least), keywords.get(most)
                if isinstance(low, int) and isinstance(high, int) and low > high:
                    del filled[least]
        if filled.get("do_sample") is False and {*WARPERS, "seed"} & set(keywords):
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
        for name, least in _WHOLE.items():
            self._at_least(name, least)
        for name, (low, high) in _FRACTIONS.items():
            value = getattr(self, name)
            if value is not None and not (_is_number(value) and low < value <= high):
                raise InputError(f"{name} is {value!r}; it must be above {low} and at most {high}.")
        for name in ("repetition_penalty", "encoder_repetition_penalty"):
            if not (_is_number(getattr(self, name)) and getattr(self, name) > 0):
                raise InputError(f"{name} is {getattr(self, name)!r}; it must be above 0 (1: none).")
        for name in ("presence_penalty", "frequency_penalty", "diversity_penalty"):
            if not _is_number(getattr(self, name)):
                raise InputError(f"{name} is {getattr(self, name)!r}; it must be a number.")
        if not (_is_number(self.length_penalty) and abs(self.length_penalty) <= 10):
            raise InputError(f"length_penalty is {self.length_penalty!r}; it must be a number between -10 and 10.")
        for name in _YES_OR_NO:
            if not isinstance(getattr(self, name), bool | None):
                raise InputError(f"{name} is {getattr(self, name)!r}; it can be True or False.")
        if self.temperature is not None and not (_is_number(self.temperature) and self.temperature >= 1e-6):
            raise InputError(
                f"temperature is {self.temperature!r}; it must be at least 0.000001. For the likeliest token always, "
                "leave it out (greedy)."
            )
        self._check_tokens()
        self._check_together()

    def _check_tokens(self) -> None:
        for name in ("bad_words_ids", "force_words_ids"):
            runs = getattr(self, name)
            nested = name == "force_words_ids"  # whose words may be lists of alternatives
            if runs is not None and not (_is_list(runs) and all(_is_run(r) or (nested and _are_runs(r)) for r in runs)):
                raise InputError(f"{name} is {runs!r}; it must be a list of lists of token ids.")
        for name in ("suppress_tokens", "begin_suppress_tokens"):
            ids = getattr(self, name)
            if ids is not None and not (_is_run(ids) or (_is_list(ids) and not ids)):
                raise InputError(f"{name} is {ids!r}; it must be a list of token ids.")
        seeds = self.seed if isinstance(self.seed, list | tuple) else [] if self.seed is None else [self.seed]
        if not all(_is_whole(seed) and abs(seed) < 2**62 for seed in seeds):
            raise InputError(f"seed is {self.seed!r}; it must be a whole number below 2 to the power of 62.")
        for name in ("eos_token_id", "forced_eos_token_id"):
            ends = getattr(self, name)
            if ends is not None and not all(map(_is_whole, ends if _is_list(ends) else [ends])):
                raise InputError(f"{name} is {ends!r}; it is a token id or a list of them.")
        texts = self.stop_strings if isinstance(self.stop_strings, list | tuple) else [self.stop_strings]
        if self.stop_strings is not None and not all(isinstance(text, str) and text for text in texts):
            raise InputError(
                f"stop_strings is {self.stop_strings!r}; it is a text or a list of texts, none of them empty."
            )
        decay = self.exponential_decay_length_penalty
        if decay is not None and not (_is_list(decay) and len(decay) == 2 and all(map(_is_number, decay))):
            raise InputError(f"exponential_decay_length_penalty is {decay!r}; it is a pair (start, factor).")

    def _check_together(self) -> None:
        """What cannot be asked for at once."""
        if self.max_new_tokens is not None and self.min_new_tokens > self.max_new_tokens:
            raise InputError(f"min_new_tokens ({self.min_new_tokens}) is above max_new_tokens ({self.max_new_tokens}).")
        if self.max_length is not None and self.min_length > self.max_length:
            raise InputError(f"min_length ({self.min_length}) is above max_length ({self.max_length}).")
        if not isinstance(self.early_stopping, bool) and self.early_stopping != "never":
            raise InputError(f'early_stopping is {self.early_stopping!r}; it can be True, False or "never".')
        if self.num_beams > 1 and self.num_return_sequences > self.num_beams:
            raise InputError(
                f"num_return_sequences ({self.num_return_sequences}) is above num_beams ({self.num_beams}): "
                "a beam search ends with num_beams hypotheses."
            )
        if self.num_beams % self.num_beam_groups:
            raise InputError(f"{self.num_beams} beams cannot be split into {self.num_beam_groups} equal groups.")
        if self.num_beam_groups > 1 and (self.samples or self.force_words_ids):
            raise InputError("Groups of beams cannot sample or force words: drop num_beam_groups or the other.")
        if self.diversity_penalty and self.num_beam_groups == 1:
            raise InputError("diversity_penalty acts between groups of beams: give num_beam_groups too.")
        if self.force_words_ids and self.num_beams == 1:
            raise InputError("force_words_ids needs room to choose: give num_beams of 2 or more.")
        if self.force_words_ids and self.samples:
            raise InputError("force_words_ids searches; it cannot sample. Drop one.")
        if self.num_beams == 1 and self.num_return_sequences > 1 and not self.samples:
            raise InputError(
                "Greedy decoding has one answer. For several, sample (top_k=40, …) or search with num_beams."
            )
        chance = [name for name in WARPERS if getattr(self, name) is not None]
        if self.penalty_alpha is not None:
            others = [name for name in chance if name != "top_k"] + ["do_sample"] * bool(self.do_sample)
            others += ["num_beams"] * (self.num_beams > 1) + ["seed"] * (self.seed is not None)
            if others:
                raise InputError(
                    f"penalty_alpha asks for contrastive search, which goes without {others[0]}. Drop one."
                )
            if self.top_k is None or self.top_k < 2:
                raise InputError(
                    "Contrastive search chooses among top_k candidates: give penalty_alpha and top_k of 2 or more."
                )
        elif self.do_sample is False and chance:
            raise InputError(f"do_sample is False, but {chance[0]} only matters when sampling. Drop one.")
        if self.speculative and (self.num_beams > 1 or self.penalty_alpha is not None):
            raise InputError(
                "Speculative decoding follows one text: it goes without num_beams and penalty_alpha. Drop one."
            )
        if self.assistant_model is not None and self.prompt_lookup_num_tokens is not None:
            raise InputError("Give assistant_model or prompt_lookup_num_tokens, and not both: one of them proposes.")
        if self.compile and self.cuda_graphs is False:
            raise InputError("compile prepares steps for recording: it goes with cuda_graphs. Drop one.")
        if (self.cuda_graphs or self.compile) and (
            self.num_beams > 1 or self.penalty_alpha is not None or self.speculative
        ):
            raise InputError(
                "cuda_graphs and compile record plain steps: they go without beams, penalty_alpha and assistants."
            )

    def _at_least(self, name: str, least: int) -> None:
        value = getattr(self, name)
        if value is not None and (not _is_whole(value) or value < least):
            raise InputError(f"{name} is {value!r}; it must be a whole number of at least {least}.")

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
        if self.pad_token_id is not None and self.pad_token_id >= config.vocab_size:
            raise InputError(f"pad_token_id is {self.pad_token_id}, but this model knows 0 to {config.vocab_size - 1}.")
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
        # The last token is written but never read, so it needs no position of its own; contrastive search reads it.
        room = wanted if limit is None else limit + (self.penalty_alpha is None) - prompt
        if room < 1:
            raise InputError(
                f"The prompt has {prompt} tokens, and the model has {limit} positions: there is no room to write. "
                "Shorten the prompt."
            )
        return min(wanted, room)


_ALIASES = {"beam_size": "num_beams", "top_beams": "num_return_sequences"}  # the words of the papers
SEARCH = ("num_beams", "num_return_sequences", "num_beam_groups", "diversity_penalty", "force_words_ids")
WARPERS = ("temperature", "top_k", "top_p", "min_p", "typical_p", "epsilon_cutoff", "eta_cutoff")
_WHOLE = {
    "max_new_tokens": 1, "max_length": 1, "min_new_tokens": 0, "min_length": 0, "top_k": 1, "num_beams": 1,
    "num_return_sequences": 1, "num_beam_groups": 1, "no_repeat_ngram_size": 0, "encoder_no_repeat_ngram_size": 0,
    "pad_token_id": 0, "decoder_start_token_id": 0, "forced_bos_token_id": 0, "prompt_lookup_num_tokens": 1,
    "num_assistant_tokens": 1,
}  # fmt: skip
_YES_OR_NO = (
    "do_sample",
    "renormalize_logits",
    "return_dict_in_generate",
    "output_scores",
    "output_logits",
    "cuda_graphs",
    "compile",
)
_FRACTIONS = {
    "top_p": (0, 1), "min_p": (0, 1), "typical_p": (0, 1), "epsilon_cutoff": (0, 1), "eta_cutoff": (0, 1),
    "penalty_alpha": (0, 1),
}  # fmt: skip
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


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 2**62  # so nan is none


def _is_list(value: object) -> bool:
    return isinstance(value, list | tuple)


def _is_run(value: Any) -> bool:
    """Whether it is a list of token ids, and not empty."""
    return _is_list(value) and len(value) > 0 and all(map(_is_whole, value))


def _are_runs(value: Any) -> bool:
    return _is_list(value) and len(value) > 0 and all(map(_is_run, value))
