"""Every option of generation, said once: its type, its default, what it may be, its group and what it does.

`generate`'s own `Options`, both command lines, the studio's form and the keys that a configuration may hold are all
derived from this table. It stands below the models, so that a configuration and a command's --help know it without
loading torch.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal

from clearhead.messages import say
from clearhead.schema import Field, fields_of

# What options stand under in a list, by the key that a field's `group` has.
GROUPS = {
    group: say(f"options.group.{group}")
    for group in ("length", "sampling", "search", "processors", "form", "speed", "tokens", "output")
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


_NGRAMS, _ENDS = say("options.expected.ngrams"), say("options.expected.ends")
_SEEDS, _STRINGS = say("options.expected.seeds"), say("options.expected.strings")


@dataclass(frozen=True, kw_only=True)
class GenerationFields:
    """The table. None: not asked for. What each does is the message `options.NAME` (messages/options.py).

    needs   the option without which this one has no effect
    """

    max_new_tokens: Annotated[int | None, Field(least=1, group="length", flags=("-n",))] = None
    max_length: Annotated[int | None, Field(least=1, group="length")] = None
    min_new_tokens: Annotated[int, Field(least=0, group="length")] = 0
    min_length: Annotated[int, Field(least=0, group="length")] = 0

    do_sample: Annotated[bool | None, Field(group="sampling")] = None
    temperature: Annotated[float | None, Field(least=1e-6, group="sampling", hint=say("options.hint.temperature"))] = (
        None
    )
    top_k: Annotated[int | None, Field(least=1, group="sampling")] = None
    top_p: Annotated[float | None, Field(above=0, most=1, group="sampling")] = None
    min_p: Annotated[float | None, Field(above=0, most=1, group="sampling")] = None
    typical_p: Annotated[float | None, Field(above=0, most=1, group="sampling")] = None
    epsilon_cutoff: Annotated[float | None, Field(above=0, most=1, group="sampling")] = None
    eta_cutoff: Annotated[float | None, Field(above=0, most=1, group="sampling")] = None
    # One number: row n of the batch draws from seed + n, so that rows differ; a list gives each row its own. A row's
    # draws do not depend on other rows.
    seed: Annotated[int | list[int] | None, Field(group="sampling", expected=_SEEDS, test=_are_seeds)] = None

    num_beams: Annotated[int, Field(least=1, group="search")] = 1
    num_return_sequences: Annotated[int, Field(least=1, group="search")] = 1
    length_penalty: Annotated[float, Field(least=-10, most=10, group="search", needs="num_beams")] = 1.0
    early_stopping: Annotated[bool | Literal["never"], Field(group="search", needs="num_beams")] = False
    num_beam_groups: Annotated[int, Field(least=1, group="search")] = 1
    diversity_penalty: Annotated[float, Field(group="search", needs="num_beam_groups")] = 0.0
    penalty_alpha: Annotated[float | None, Field(above=0, most=1, group="search")] = None

    repetition_penalty: Annotated[float, Field(above=0, group="processors")] = 1.0
    presence_penalty: Annotated[float, Field(group="processors")] = 0.0
    frequency_penalty: Annotated[float, Field(group="processors")] = 0.0
    no_repeat_ngram_size: Annotated[int, Field(least=0, group="processors")] = 0
    encoder_repetition_penalty: Annotated[float, Field(above=0, group="processors")] = 1.0
    encoder_no_repeat_ngram_size: Annotated[int, Field(least=0, group="processors")] = 0
    renormalize_logits: Annotated[bool, Field(group="processors")] = False

    stop_strings: Annotated[
        str | list[str] | None,
        Field(group="form", flags=("--stop",), metavar="TEXT", expected=_STRINGS, test=_are_strings),
    ] = None
    grammar: Annotated[Any, Field(group="form")] = None

    assistant_model: Annotated[Any, Field(group="speed")] = None
    prompt_lookup_num_tokens: Annotated[
        int | None, Field(least=1, group="speed", flags=("--prompt-lookup",), metavar="N")
    ] = None
    num_assistant_tokens: Annotated[int, Field(least=1, group="speed", needs="assistant_model")] = 5
    cuda_graphs: Annotated[bool | None, Field(group="speed")] = None
    compile: Annotated[bool, Field(group="speed")] = False

    eos_token_id: Annotated[int | list[int] | None, Field(group="tokens", expected=_ENDS)] = None
    pad_token_id: Annotated[int | None, Field(least=0, group="tokens")] = None
    decoder_start_token_id: Annotated[int | None, Field(least=0, group="tokens")] = None
    forced_bos_token_id: Annotated[int | None, Field(least=0, group="tokens")] = None
    forced_eos_token_id: Annotated[int | list[int] | None, Field(group="tokens", expected=_ENDS)] = None
    bad_words_ids: Annotated[list[list[int]] | None, Field(group="tokens", expected=_NGRAMS, test=_are_ngrams)] = None
    force_words_ids: Annotated[list[Any] | None, Field(group="tokens", expected=_NGRAMS, test=_are_words)] = None
    suppress_tokens: Annotated[list[int] | None, Field(group="tokens")] = None
    begin_suppress_tokens: Annotated[list[int] | None, Field(group="tokens")] = None
    sequence_bias: Annotated[Any, Field(group="tokens")] = None
    exponential_decay_length_penalty: Annotated[
        tuple[float, float] | None, Field(group="tokens", expected=say("options.expected.decay"))
    ] = None

    return_dict_in_generate: Annotated[bool, Field(group="output")] = False
    output_scores: Annotated[bool, Field(group="output", needs="return_dict_in_generate")] = False
    output_logits: Annotated[bool, Field(group="output", needs="return_dict_in_generate")] = False

    def __post_init__(self) -> None:
        for name, field in FIELDS.items():
            if (value := getattr(self, name)) is not field.default:
                field.check(value)


FIELDS: dict[str, Field] = {
    name: replace(field, help=say(f"options.{name}")) for name, field in fields_of(GenerationFields).items()
}
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
