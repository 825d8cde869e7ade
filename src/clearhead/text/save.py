"""Writes a tokenizer to a folder, in files that this library and `transformers` open alike."""

import copy
import os
import tempfile
from pathlib import Path
from typing import Any

import tokenizers
from tokenizers import decoders, models, normalizers, pre_tokenizers

from clearhead.errors import TokenizerError
from clearhead.files import atomic_write, write_json
from clearhead.text.added_tokens import EXTRAS, NAMES, as_object, content_of, extra_tokens, listed_extras
from clearhead.text.backend import copy_of
from clearhead.text.files import TARGET_FOLDER
from clearhead.text.options import NO_LIMIT
from clearhead.text.tokenizer import Tokenizer

_FLAGS_OF_NOTE = ("lstrip", "normalized", "rstrip", "single_word")  # without any of them, a token is a plain string


def save_tokenizer(tokenizer: Tokenizer, folder: str | os.PathLike[str]) -> list[Path]:
    """Writes the files and returns them. Each appears whole or not at all.

    tokenizer.json is the tokenizer; tokenizer_config.json and special_tokens_map.json are how it is used; vocab.txt,
    or vocab.json and merges.txt, are for programs that read the older formats. What the wrapped library cannot write
    (CTRL, Marian, M2M-100) is written in the files it was published as.
    """
    where = Path(folder)
    try:
        where.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise TokenizerError(f"{where} cannot be made a folder: {error.strerror or error}.") from error
    target = tokenizer.target if tokenizer.target is not tokenizer and tokenizer.languages is None else None
    if tokenizer.source_files is not None:
        contents = dict(tokenizer.source_files.files())
        if target is not None and target.source_files is not None:  # as published, both stand in one folder
            contents |= target.source_files.files()
            target = None
    else:
        contents = _vocabulary_files(tokenizer.backend)
        contents["tokenizer.json"] = _backend_as_loaded(tokenizer).to_str(pretty=True).encode("utf-8")
    for name, data in contents.items():
        atomic_write(where / name, data, TokenizerError)
    write_json(where / "special_tokens_map.json", _special_tokens_map(tokenizer), TokenizerError)
    write_json(where / "tokenizer_config.json", _config(tokenizer), TokenizerError)
    if target is not None:  # it has a model of its own
        save_tokenizer(target, where / TARGET_FOLDER)
    return [where / name for name in (*contents, "special_tokens_map.json", "tokenizer_config.json")]


def _backend_as_loaded(tokenizer: Tokenizer) -> tokenizers.Tokenizer:
    """The tokenizer with the padding and truncation its file came with, for programs that rely on them."""
    backend = copy_of(tokenizer.backend)
    if tokenizer.file_truncation is not None:
        backend.enable_truncation(**tokenizer.file_truncation)
    if tokenizer.file_padding is not None:
        backend.enable_padding(**tokenizer.file_padding)
    return backend


def _vocabulary_files(backend: tokenizers.Tokenizer) -> dict[str, bytes]:
    """The files of the older formats, where there is one that can say what the tokenizer is."""
    byte_level = isinstance(backend.model, models.BPE) and isinstance(backend.decoder, decoders.ByteLevel)
    if not byte_level and not isinstance(backend.model, models.WordPiece):
        return {}
    ids = backend.get_vocab(with_added_tokens=False).values()
    if not byte_level and sorted(ids) != list(range(len(ids))):
        return {}  # the lines of vocab.txt are the ids, so a gap cannot be written
    with tempfile.TemporaryDirectory() as scratch:
        made = [Path(name) for name in backend.model.save(scratch)]
        return {path.name: path.read_bytes() for path in made}


def _special_tokens_map(tokenizer: Tokenizer) -> dict[str, Any]:
    flags = {token.content: as_object(token) for token in tokenizer.backend.get_added_tokens_decoder().values()}

    def written(token: str) -> str | dict[str, Any]:
        token_flags = flags.get(token)
        if token_flags is None or not any(token_flags[name] for name in _FLAGS_OF_NOTE):
            return token
        return {key: value for key, value in token_flags.items() if key != "special"}

    tokens: dict[str, Any] = {name: written(token) for name, token in tokenizer.special_tokens_map.items()}
    if tokenizer.extra_special_tokens:
        tokens["additional_special_tokens"] = [written(token) for token in tokenizer.extra_special_tokens]
    return tokens


def _config(tokenizer: Tokenizer) -> dict[str, Any]:
    """What the tokenizer was opened with, every key of it, and whatever has changed since."""
    config = copy.deepcopy(tokenizer.config)
    config.setdefault("tokenizer_class", tokenizer.saved_class)
    for name in NAMES:
        token = tokenizer.special_tokens_map.get(name)
        if content_of(config.get(name)) != token:
            config[name] = token
    listed = listed_extras(config)
    named_elsewhere = [content_of(token) for token in extra_tokens(config, "the configuration")]
    for token in listed:
        named_elsewhere.remove(token)
    extra = [token for token in tokenizer.extra_special_tokens if token not in named_elsewhere]
    if extra != [token for token in listed if token not in named_elsewhere]:
        for key in EXTRAS:
            if isinstance(config.get(key), list):
                del config[key]
        config["additional_special_tokens"] = extra
    for key, value, default in (
        ("padding_side", tokenizer.padding_side, "right"),
        ("truncation_side", tokenizer.truncation_side, "right"),
        ("clean_up_tokenization_spaces", tokenizer.clean_up_tokenization_spaces, False),
        ("model_max_length", tokenizer.model_max_length, NO_LIMIT),
        ("model_input_names", tokenizer.model_input_names, None),
        ("src_lang", tokenizer.src_lang, None),
        ("tgt_lang", tokenizer.tgt_lang, None),
    ):
        if config.get(key, default) != value:
            config[key] = value
    _note_pipeline(config, tokenizer.backend)
    # readers that find this list look no further, so no file left over from an older save can confuse them
    added = tokenizer.backend.get_added_tokens_decoder()
    config["added_tokens_decoder"] = {str(index): as_object(added[index]) for index in sorted(added)}
    return config


def _note_pipeline(config: dict[str, Any], backend: tokenizers.Tokenizer) -> None:
    """Settings that `transformers` takes from the configuration even where tokenizer.json says otherwise."""
    normalizer, splitter = backend.normalizer, backend.pre_tokenizer
    if isinstance(normalizer, normalizers.BertNormalizer):
        config["do_lower_case"] = normalizer.lowercase
        config["strip_accents"] = normalizer.strip_accents
        config["tokenize_chinese_chars"] = normalizer.handle_chinese_chars
    if isinstance(splitter, pre_tokenizers.ByteLevel):
        config["add_prefix_space"] = splitter.add_prefix_space
