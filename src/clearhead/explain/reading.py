"""A text as a model reads it: the tensors to call it with, and the tokens to show beside every number."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from clearhead.errors import InputError
from clearhead.models.heads import ChoiceHead
from clearhead.models.model import EncoderDecoderModel, Model, StackModel
from clearhead.nn.segment_recurrence import RelativeAttention
from clearhead.nn.stack import Stack

if TYPE_CHECKING:
    from clearhead.pipeline import Pipeline
    from clearhead.text import Tokenizer


@dataclass(frozen=True)
class Token:
    """One token of a text, or one whole word of it.

    text      as a person reads it, with its space
    id        in the vocabulary; -1 for a word of several pieces
    word      which word it is a piece of, counted from 0; None for special tokens
    segment   0 for the first text, 1 for the second of a pair
    """

    text: str
    id: int
    word: int | None
    segment: int = 0

    @property
    def special(self) -> bool:
        return self.word is None


@dataclass(frozen=True)
class Reading:
    """
    inputs   what the model is called with, each (1, time)
    tokens   what its (only) stack reads; of an encoder–decoder, what the encoder reads
    target   what the decoder reads, from its start token on; empty without one
    """

    inputs: dict[str, Tensor]
    tokens: list[Token]
    target: list[Token]

    @property
    def written(self) -> list[Token]:
        """The tokens at which the head gives its answers: the decoder's, where there is one."""
        return self.target or self.tokens


def read(pipe: Pipeline, text: str, pair: str | None = None, target: str | None = None) -> Reading:
    """How `pipe` reads a text, or a pair of texts.

    target   of an encoder–decoder: what it is made to write. Without one it writes its own answer first.
    """
    model = pipe.model
    for name, given in (("text", text), ("pair", pair), ("target", target)):
        if given is not None and not isinstance(given, str):
            raise InputError(f"The {name} must be a string, not {type(given).__name__}.")
    if text is None or not text.strip():
        raise InputError("There is no text to explain. Give at least one word.")
    if pair is not None and not pair.strip():
        raise InputError("The second text is empty. Leave it out, or give at least one word.")
    if isinstance(model.head, ChoiceHead):
        raise InputError(
            f"{_name(pipe)} is loaded for {model.task}, which reads several texts at once. Load it for another task."
        )
    if isinstance(model, EncoderDecoderModel):
        if pair is not None:
            raise InputError("An encoder–decoder reads one text: leave the second out.")
        return _read_and_write(pipe, model, text, target)
    if target is not None:
        raise InputError(f"{_name(pipe)} has one stack, which reads; only an encoder–decoder has a target.")
    assert isinstance(model, StackModel)
    if model.stack.causal and pair is None and model.language_head is not None:
        ids = pipe.encode_prompts(text)[1]  # without an end token: the model is to go on
        _check_length(pipe, "text", model.stack, ids.shape[1])
        return Reading({"input_ids": ids}, tokens_of(pipe.tokenizer, ids[0].tolist(), text), [])
    encoding = pipe.tokenizer(text, pair)
    ids = torch.tensor([encoding["input_ids"]], device=model.device)
    if ids.shape[1] == 0:
        raise InputError("The text has no tokens: the tokenizer left nothing of it. Give at least one word.")
    _check_length(pipe, "text" if pair is None else "two texts together", model.stack, ids.shape[1])
    inputs = {"input_ids": ids}
    if "token_type_ids" in encoding and _knows_segments(model.stack):
        inputs["token_type_ids"] = torch.tensor([encoding["token_type_ids"]], device=model.device)
    segments, last = [], 0
    for segment in encoding.sequence_ids():
        last = last if segment is None else segment  # [SEP] belongs to the text before it
        segments.append(last)
    texts = [text if segment == 0 else pair or "" for segment in segments]
    return Reading(inputs, _labelled(pipe.tokenizer, encoding["input_ids"], encoding.offsets(), texts, segments), [])


def _name(pipe: Pipeline) -> str:
    return pipe.name or "This model"


def _knows_segments(stack: Stack) -> bool:
    attention: Any = stack.blocks[0].attention
    return stack.embed.segments is not None or (
        isinstance(attention, RelativeAttention) and attention.segments is not None
    )


def _check_length(pipe: Pipeline, what: str, stack: Stack, length: int) -> None:
    room = stack.embed.room
    if room is not None and length > room:
        raise InputError(f"The {what} has {length} tokens, but {_name(pipe)} reads at most {room}. Shorten it.")


# ---- encoder–decoders


def _read_and_write(pipe: Pipeline, model: EncoderDecoderModel, text: str, target: str | None) -> Reading:
    reader, options = pipe.in_languages({})
    source = pipe.encode_prompts(text, reader)[1]
    _check_length(pipe, "text", model.encoder, source.shape[1])
    read_tokens = tokens_of(reader or pipe.source_tokenizer, source[0].tolist(), text)
    inputs = {"input_ids": source}
    writer = pipe.tokenizer.target
    start = options.get("decoder_start_token_id", getattr(model.config, "decoder_start_token_id", None))
    forced = options.get("forced_bos_token_id", getattr(model.config, "forced_bos_token_id", None))
    if target is None and model.language_head is None:
        if not model.target_is_source:
            raise InputError(f"{_name(pipe)} is loaded for {model.task} and does not write: give the target to read.")
        given = model.shift_right(source)  # the decoder reads the source, one step late
        inputs["decoder_input_ids"] = given
        _check_length(pipe, "text", model.decoder, given.shape[1])
        return Reading(inputs, read_tokens, tokens_of(writer, given[0].tolist(), text))
    if start is None:
        raise InputError(
            "The configuration does not say which token starts the output. "
            "For a model that knows languages, set pipe.tokenizer.tgt_lang first."
        )
    if target is None:
        written = pipe.write(text, num_return_sequences=1)[0]
        ids = [start, *written.token_ids]
        ids = (
            ids[:-1] if written.finish_reason == "end" else ids[: model.decoder.embed.room]
        )  # the last is read by nobody
        target = written.new_text
    else:
        ids = [start] if forced is None else [start, forced]
        ids += writer.encode(target, add_special_tokens=False) if target else []
    _check_length(pipe, "target", model.decoder, len(ids))
    inputs["decoder_input_ids"] = torch.tensor([ids], device=model.device)
    return Reading(inputs, read_tokens, tokens_of(writer, ids, target))


# ---- tokens and the words they are pieces of


def tokens_of(tokenizer: Tokenizer, ids: list[int], text: str) -> list[Token]:
    """Ids with the words they are pieces of: from the text where it gives these ids, else one word each."""
    return _labelled(tokenizer, ids, spans_of(tokenizer, ids, text), [text] * len(ids), [0] * len(ids))


def spans_of(tokenizer: Tokenizer, ids: list[int], text: str) -> list[tuple[int, int]]:
    """Where each token's characters stand in the text; (0, 0) for special tokens, or where the text gives other ids."""
    encoding = tokenizer(text, add_special_tokens=False) if text else None
    own = encoding["input_ids"] if encoding is not None else []
    begin = next((n for n in range(len(ids) - len(own) + 1) if ids[n : n + len(own)] == own), None)
    spans: list[tuple[int, int]] = [(0, 0)] * len(ids)
    if encoding is not None and begin is not None:
        spans[begin : begin + len(own)] = encoding.offsets()
    return spans


def _labelled(
    tokenizer: Tokenizer, ids: list[int], spans: list[tuple[int, int]], texts: list[str], segments: list[int]
) -> list[Token]:
    """spans: where each token's characters stand in its text; (0, 0) where that is not known."""
    special = special_ids(tokenizer)
    tokens: list[Token] = []
    words = 0
    for n, (shown, id_) in enumerate(zip(readable(tokenizer, ids), ids, strict=True)):
        if id_ in special:
            tokens.append(Token(shown, id_, None, segments[n]))
            continue
        before = tokens[-1] if tokens else None
        joins = before is not None and not before.special and before.segment == segments[n]
        if not joins or not _same_word(texts[n], spans[n - 1], spans[n]):
            words += 1
        tokens.append(Token(shown, id_, words - 1, segments[n]))
    return tokens


def special_ids(tokenizer: Tokenizer) -> set[int]:
    """What marks a place rather than saying something. An unknown or a hidden word is still a word."""
    marks = {getattr(tokenizer, f"{name}_token_id") for name in ("bos", "eos", "sep", "cls", "pad")} - {None}
    words = {tokenizer.unk_token_id, tokenizer.mask_token_id}
    return (set(tokenizer.all_special_ids) - words) | marks


def readable(tokenizer: Tokenizer, ids: list[int]) -> list[str]:
    """Tokens as a person reads them, spaces as spaces: SentencePiece writes one as ▁, others mark a word's end."""
    special = set(tokenizer.all_special_ids)
    shown = []
    for id_, token in zip(ids, tokenizer.readable(ids), strict=True):
        if id_ not in special and token:
            token = " " + token[1:] if token[0] == "▁" else token
            token = token.removesuffix("</w>") + " " if token.endswith("</w>") else token
        shown.append(token)
    return shown


def _same_word(text: str, before: tuple[int, int], here: tuple[int, int]) -> bool:
    """Whether two neighbouring tokens, by where their characters stand, are pieces of one word.

    The rule is the same for every tokenizer. Letters and digits that touch are one word, with an apostrophe between
    letters; other signs stand alone. Scripts that write no spaces have no rule but their tokens: only parts of one
    character belong together.
    """
    (begin, end), (first, last) = before, here
    if begin >= end or first >= last:
        return False
    if first < end:  # parts of one character
        return True
    if first > end or text[first].isspace():
        return False
    if text[begin:end].isspace():  # a space goes with the word after it, the end of a line does not
        return "\n" not in text[begin:end]
    return _inside_word(text, first - 1) and _inside_word(text, first)


def _inside_word(text: str, at: int) -> bool:
    char = text[at]
    if char in "'’":
        return 0 < at < len(text) - 1 and text[at - 1].isalpha() and text[at + 1].isalpha()
    return (char.isalnum() or unicodedata.category(char)[0] == "M") and not _without_spaces(char)


def _without_spaces(char: str) -> bool:
    """Chinese and Japanese signs, Thai, Lao, Khmer and Burmese: scripts that do not set words apart."""
    name = unicodedata.name(char, "")
    return name.startswith(("CJK ", "HIRAGANA ", "KATAKANA ", "THAI ", "LAO ", "KHMER ", "MYANMAR "))


def whole_words(tokens: list[Token]) -> list[list[int]]:
    """The positions of each word, in order; a special token is a word of its own."""
    groups: list[list[int]] = []
    before: int | None = None
    for n, token in enumerate(tokens):
        if token.word is not None and token.word == before:
            groups[-1].append(n)
        else:
            groups.append([n])
        before = token.word
    return groups


def as_words(tokenizer: Tokenizer, tokens: list[Token]) -> list[Token]:
    """The words that tokens make up, each as one token."""
    words = []
    for group in whole_words(tokens):
        first = tokens[group[0]]
        if len(group) > 1:
            whole = "".join(tokenizer.decode([tokens[n].id for n in group]).split())
            first = replace(first, text=" " * first.text.startswith(" ") + whole, id=-1)
        words.append(first)
    return words


def token_id(tokenizer: Tokenizer, word: str | int, vocabulary: int) -> int:
    """The id of a token that somebody chose, by its id or by its text."""
    if isinstance(word, int) and not isinstance(word, bool):
        if not 0 <= word < vocabulary:
            raise InputError(f"There is no token {word}: ids go from 0 to {vocabulary - 1}.")
        return word
    if not isinstance(word, str) or not word:
        raise InputError(f"A token is chosen by its text or its id, not by {word!r}.")
    ids = tokenizer.encode(word, add_special_tokens=False)
    if len(ids) > 1 and (whole := tokenizer.backend.token_to_id(word)) is not None:
        return int(whole)
    if len(ids) != 1:
        pieces = ", ".join(repr(piece) for piece in readable(tokenizer, ids))
        raise InputError(f"{word!r} is {len(ids)} tokens ({pieces}); choose one token, by its text or its id.")
    return int(ids[0])


# ---- where to look


def place(name: str, value: int, size: int, whole: str) -> int:
    """A layer, head or position, counted from the end if negative. whole: what has them, "the model has 12 layers"."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise InputError(f"A {name} is a whole number, not {value!r}.")
    if not -size <= value < size:
        raise InputError(f"There is no {name} {value}: {whole}, counted from 0.")
    return value % size


def places(name: str, asked: int | list[int] | range | tuple[int, ...] | None, size: int, whole: str) -> list[int]:
    """All of them (None), one, or several, each once and in the order asked for."""
    if asked is None:
        return list(range(size))
    if not isinstance(asked, list | tuple | range):
        asked = [asked]
    found = list(dict.fromkeys(place(name, n, size, whole) for n in asked))
    if not found:
        raise InputError(f"The list of {name}s is empty. Leave it out for all of them.")
    return found


@contextmanager
def at_rest(model: Model) -> Iterator[None]:
    """The model as it answers, without dropout and without gradients; a model in training goes on training after."""
    training = model.training
    if training:
        model.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        if training:
            model.train()


def call(pipe: Pipeline, reading: Reading, **more: Any) -> Any:
    """The model's output for a reading."""
    return pipe.model(**reading.inputs, **more)
