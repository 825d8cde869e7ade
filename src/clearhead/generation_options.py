"""Every option of generation, said once: its type, its default, what it may be, its group and what it does.

`generate`'s own `Options`, both command lines, the studio's form and the keys that a configuration may hold are all
derived from this table. It stands below the models, so that a configuration and a command's --help know it without
loading torch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Literal

from clearhead.messages import say
from clearhead.schema import Field, fields_of

# What options stand under in a list, by the key that a field's `group` has.
GROUPS = {
    "length": "Length: how much is written",
    "sampling": "Sampling: draw the next token at random (any of these turns it on)",
    "search": "Search: look further than the next token",
    "processors": "Logits processors: change the scores before a token is chosen",
    "form": "Form of the answer: only texts that fit can be written",
    "speed": "Speed: the same answer sooner, or nearly the same in less memory",
    "tokens": "Tokens: by their ids",
    "output": "Output: what comes back",
}


def _are_ngrams(value: Any) -> bool:
    return all(len(ngram) > 0 for ngram in value)


def _are_words(value: Any) -> bool:
    """Each an n-gram of token ids, or a list of n-grams of which one counts."""
    return all(_is_ngram(word) or (_is_list(word) and len(word) > 0 and all(map(_is_ngram, word))) for word in value)


def _is_ngram(value: Any) -> bool:
    return _is_list(value) and len(value) > 0 and all(isinstance(t, int) and not isinstance(t, bool) for t in value)


def _is_list(value: Any) -> bool:
    return isinstance(value, list | tuple)


def _are_seeds(value: Any) -> bool:
    return all(abs(seed) < 2**62 for seed in (value if _is_list(value) else [value]))


def _are_strings(value: Any) -> bool:
    return all(value if _is_list(value) else [value])


_NGRAMS = "a list of lists of token ids"
_ENDS = "a token id or a list of them"
_SEEDS = "a whole number below 2 to the power of 62, or a list of them"
_STRINGS = "a text or a list of texts, none of them empty"


@dataclass(frozen=True, kw_only=True)
class GenerationFields:
    """The table. None: not asked for."""

    max_new_tokens: Annotated[
        int | None, Field(help=say("options.max_new_tokens"), least=1, group="length", flags=("-n",))
    ] = None
    max_length: Annotated[int | None, Field(help="The same, the prompt counted too.", least=1, group="length")] = None
    min_new_tokens: Annotated[int, Field(help=say("options.min_new_tokens"), least=0, group="length")] = 0
    min_length: Annotated[int, Field(help="The same, the prompt counted too.", least=0, group="length")] = 0

    do_sample: Annotated[
        bool | None, Field(help="Draw at random, or take the likeliest; by default, draw if one of these is given.",
                           group="sampling")
    ] = None  # fmt: skip
    temperature: Annotated[
        float | None,
        Field(help=say("options.temperature"), least=1e-6, group="sampling",
              hint="For the likeliest token always, leave it out (greedy)."),
    ] = None  # fmt: skip
    top_k: Annotated[int | None, Field(help=say("options.top_k"), least=1, group="sampling")] = None
    top_p: Annotated[
        float | None, Field(help=say("options.top_p"), above=0,
                            most=1, group="sampling")
    ] = None  # fmt: skip
    min_p: Annotated[
        float | None, Field(help=say("options.min_p"), above=0, most=1,
                            group="sampling")
    ] = None  # fmt: skip
    typical_p: Annotated[
        float | None, Field(help=say("options.typical_p"), above=0,
                            most=1, group="sampling")
    ] = None  # fmt: skip
    epsilon_cutoff: Annotated[
        float | None, Field(help="Drop tokens below this probability.", above=0, most=1, group="sampling")
    ] = None
    eta_cutoff: Annotated[
        float | None, Field(help="Drop tokens below a probability that falls where the model is unsure.", above=0,
                            most=1, group="sampling")
    ] = None  # fmt: skip
    # One number: row n of the batch draws from seed + n, so that rows differ; a list gives each row its own. A row's
    # draws do not depend on other rows.
    seed: Annotated[
        int | list[int] | None,
        Field(help=say("options.seed"), group="sampling", expected=_SEEDS,
              test=_are_seeds),
    ] = None  # fmt: skip

    num_beams: Annotated[int, Field(help=say("options.num_beams"), least=1, group="search")] = 1
    num_return_sequences: Annotated[int, Field(help="How many answers to give.", least=1, group="search")] = 1
    length_penalty: Annotated[
        float, Field(help=say("options.length_penalty"),
                     least=-10, most=10, group="search")
    ] = 1.0  # fmt: skip
    early_stopping: Annotated[
        bool | Literal["never"],
        Field(help="Beams: stop when num_beams have ended; false: when none is likely to get better; never: when none "
              "can.", group="search"),
    ] = False  # fmt: skip
    num_beam_groups: Annotated[
        int, Field(help="Beams: in so many groups that avoid each other.", least=1, group="search")
    ] = 1
    diversity_penalty: Annotated[
        float, Field(help="Beams: what a group is charged for a token that an earlier group chose.", group="search")
    ] = 0.0
    penalty_alpha: Annotated[
        float | None, Field(help="Contrastive search, with top_k: the weight against saying the same again.", above=0,
                            most=1, group="search")
    ] = None  # fmt: skip

    repetition_penalty: Annotated[float, Field(help=say("options.repetition_penalty"), above=0, group="processors")] = (
        1.0
    )
    presence_penalty: Annotated[
        float, Field(help="Taken from the score of a token that was written.", group="processors")
    ] = 0.0
    frequency_penalty: Annotated[float, Field(help="The same, for each time it was written.", group="processors")] = 0.0
    no_repeat_ngram_size: Annotated[
        int, Field(help=say("options.no_repeat_ngram_size"), least=0, group="processors")
    ] = 0
    encoder_repetition_penalty: Annotated[
        float, Field(help="Encoder–decoders: above 1 keeps to the words of the source.", above=0, group="processors")
    ] = 1.0
    encoder_no_repeat_ngram_size: Annotated[
        int, Field(help="Encoder–decoders: copy no run of so many tokens.", least=0, group="processors")
    ] = 0
    renormalize_logits: Annotated[
        bool, Field(help="Last of all, make the scores log-probabilities again.", group="processors")
    ] = False

    stop_strings: Annotated[
        str | list[str] | None,
        Field(help=say("options.stop_strings"), group="form", flags=("--stop",), metavar="TEXT",
              expected=_STRINGS, test=_are_strings),
    ] = None  # fmt: skip
    grammar: Annotated[
        Any, Field(help="The new text must fit: a clearhead.generate.Grammar (choices, regex, json).", group="form")
    ] = None

    assistant_model: Annotated[
        Any, Field(help="Speculative decoding: a smaller model drafts, MODEL verifies. Same text.", group="speed")
    ] = None
    prompt_lookup_num_tokens: Annotated[
        int | None,
        Field(help="Speculative decoding: propose N tokens that followed the same words. Same text.", least=1,
              group="speed", flags=("--prompt-lookup",), metavar="N"),
    ] = None  # fmt: skip
    num_assistant_tokens: Annotated[
        int, Field(help="How many tokens a draft model proposes at a time.", least=1, group="speed")
    ] = 5
    cuda_graphs: Annotated[
        bool | None, Field(help="Replay each step from a recording. None: where it is possible (a CUDA device).",
                           group="speed")
    ] = None  # fmt: skip
    compile: Annotated[
        bool, Field(help="Compile layers before they are recorded: some seconds for each shape, then faster.",
                    group="speed")
    ] = False  # fmt: skip

    eos_token_id: Annotated[
        int | list[int] | None, Field(help="The tokens that end a text; [] for none.", group="tokens", expected=_ENDS)
    ] = None
    pad_token_id: Annotated[int | None, Field(help="What fills a finished row.", least=0, group="tokens")] = None
    decoder_start_token_id: Annotated[
        int | None, Field(help="What an encoder–decoder starts from.", least=0, group="tokens")
    ] = None
    forced_bos_token_id: Annotated[
        int | None, Field(help="What must follow a single start token: a language, for translators.", least=0,
                          group="tokens")
    ] = None  # fmt: skip
    forced_eos_token_id: Annotated[
        int | list[int] | None,
        Field(help="What must come last where the length runs out; [] for nothing.", group="tokens", expected=_ENDS),
    ] = None
    bad_words_ids: Annotated[
        list[list[int]] | None,
        Field(help="N-grams that are never written; [] for none.", group="tokens", expected=_NGRAMS, test=_are_ngrams),
    ] = None
    force_words_ids: Annotated[
        list[Any] | None,
        Field(help="Constrained beam search: n-grams that must be written; a list of alternatives counts as one.",
              group="tokens", expected=_NGRAMS, test=_are_words),
    ] = None  # fmt: skip
    suppress_tokens: Annotated[list[int] | None, Field(help="Tokens that are never written.", group="tokens")] = None
    begin_suppress_tokens: Annotated[
        list[int] | None, Field(help="Tokens that are not written at the first place.", group="tokens")
    ] = None
    sequence_bias: Annotated[
        Any, Field(help="{(tokens): what is added to the score of finishing this n-gram}.", group="tokens")
    ] = None
    exponential_decay_length_penalty: Annotated[
        tuple[float, float] | None,
        Field(help="(start, factor): after `start` new tokens the end grows likelier.", group="tokens",
              expected="a pair (start, factor)"),
    ] = None  # fmt: skip

    return_dict_in_generate: Annotated[
        bool, Field(help="Return a Generation: log-probabilities and reasons to stop beside the tokens.",
                    group="output")
    ] = False  # fmt: skip
    output_scores: Annotated[
        bool, Field(help="Keep the scores of every step, processed and warped, in it.", group="output")
    ] = False
    output_logits: Annotated[
        bool, Field(help="Keep the logits of every step, as the model gave them, in it.", group="output")
    ] = False

    def __post_init__(self) -> None:
        for name, field in FIELDS.items():
            if (value := getattr(self, name)) is not field.default:
                field.check(value)


FIELDS: dict[str, Field] = fields_of(GenerationFields)
WARPERS = ("temperature", "top_k", "top_p", "min_p", "typical_p", "epsilon_cutoff", "eta_cutoff")  # they need a draw
SEARCH = ("num_beams", "num_return_sequences", "num_beam_groups", "diversity_penalty", "force_words_ids")

# What one can say in a line: options with a number, a choice or a text; `--top-k 40`.
COMMAND_LINE: dict[str, Field] = {
    name: field
    for name, field in FIELDS.items()
    if field.group not in ("tokens", "output") and field.kind != "value" and name not in ("cuda_graphs", "compile")
}

# Options that are not kept in a config.json: ours alone, of one call, or read by the configuration itself.
_NOT_IN_CONFIG = frozenset(
    """
    stop_strings seed presence_penalty frequency_penalty grammar assistant_model prompt_lookup_num_tokens
    num_assistant_tokens cuda_graphs compile return_dict_in_generate output_scores output_logits
    eos_token_id pad_token_id forced_bos_token_id forced_eos_token_id bad_words_ids
    """.split()
)
# Keys of generation that a config.json may hold (older checkpoints do); the last two change nothing here.
CONFIG_KEYS = (frozenset(FIELDS) - _NOT_IN_CONFIG) | {"top_h", "remove_invalid_values"}


def listing() -> str:
    """All options by group, to be read: the documentation of `Options`."""
    lines = []
    for group, title in GROUPS.items():
        lines += ["", title]
        for field in FIELDS.values():
            if field.group == group:
                default = "" if field.default is None else f" ({field.default})"
                lines.append(f"    {field.name + default:<36} {field.help}")
    return "\n".join(lines).strip("\n")
