"""Opens a tokenizer from a folder: tokenizer.json if it is there, the older files of each model otherwise."""

import logging
import os
from collections.abc import Mapping
from pathlib import Path

import tokenizers
from tokenizers import AddedToken, models

from clearhead.errors import TokenizerError
from clearhead.text.added_tokens import content_of
from clearhead.text.builders.bpe import MergesFiles
from clearhead.text.builders.declared import Declared, contents
from clearhead.text.builders.families import by_name
from clearhead.text.builders.sentencepiece import SentencePieceFiles
from clearhead.text.builders.unapplied import warn_of_unapplied
from clearhead.text.builders.vocabulary_files import VocabularyFiles
from clearhead.text.builders.wordpiece import WordPieceFiles
from clearhead.text.files import SENTENCEPIECE_FILES, TARGET_FOLDER, library_errors, read_bytes
from clearhead.text.tokenizer import Tokenizer

log = logging.getLogger("clearhead")

_FILE_NAMES = f"tokenizer.json, vocab.txt, vocab.json with merges.txt, or one of {', '.join(SENTENCEPIECE_FILES)}"
# formats in the order they are looked for, each with the family that has it where no file announces one
_FORMATS = (
    (WordPieceFiles, by_name("bert")),
    (MergesFiles, by_name("gpt2")),
    (SentencePieceFiles, None),
)
_GENERAL_CLASSES = ("PreTrainedTokenizer", "TokenizersBackend")  # of `transformers`: they announce nothing
_GENERAL_CLASS = "PreTrainedTokenizerFast"


def load_tokenizer(folder: str | os.PathLike[str], assumed: str | None = None) -> Tokenizer:
    """Opens the tokenizer in a folder. Nothing is downloaded, and nothing in the folder is ever executed.

    assumed   the family whose tokenizer it is where no file announces one, for whoever knows the model

    A model that writes in another vocabulary has a second tokenizer, `target`: in the folder target_tokenizer, or (as
    Marian is published) in the file target.spm.
    """
    where = Path(folder)
    if not where.is_dir():
        what = "is a file, not a folder" if where.exists() else "does not exist"
        raise TokenizerError(f"{where} {what}. Pass the folder that holds {_FILE_NAMES}.")
    with library_errors(where):
        return _open(where, assumed)


def _open(where: Path, assumed: str | None) -> Tokenizer:
    saved = (where / "tokenizer.json").is_file()
    declared = Declared.read(where)
    if declared.announced is None and assumed is not None:
        declared.family = by_name(assumed)
    tokenizer = _open_json(where / "tokenizer.json", declared) if saved else _open_older(where, declared)
    if (where / TARGET_FOLDER).is_dir():
        return tokenizer.with_target(load_tokenizer(where / TARGET_FOLDER))
    if not saved and (where / "source.spm").is_file() and (where / "target.spm").is_file():
        return tokenizer.with_target(_open_older(where, Declared.read(where), where / "target.spm"))
    return tokenizer


def _open_json(path: Path, declared: Declared) -> Tokenizer:
    data = read_bytes(path)
    with library_errors(path):
        backend = tokenizers.Tokenizer.from_buffer(data)
    _know_unknown(backend)
    declared.apply_settings()
    if declared.announced is None and isinstance(backend.model, models.WordPiece):
        declared.family = by_name("bert")
    named = declared.named_tokens()
    padding, truncation = backend.padding, backend.truncation
    if padding is not None:
        named.setdefault("pad_token", AddedToken(padding["pad_token"], special=True))
        declared.config.setdefault("padding_side", padding["direction"])
    if truncation is not None:
        declared.config.setdefault("truncation_side", truncation["direction"])
    _apply_settings(backend, declared)
    declared.register(backend, named)
    warn_of_unapplied(declared.config, declared.family, backend, rebuilt=False)
    return _tokenizer(backend, declared, named)


def _know_unknown(backend: tokenizers.Tokenizer) -> None:
    """The unknown token may be an added one; the wrapped library looks for it among the words only."""
    model = backend.model
    if not isinstance(model, models.WordPiece | models.WordLevel) or model.token_to_id(model.unk_token) is not None:
        return
    index = backend.token_to_id(model.unk_token)
    if index is None:
        return
    vocab = backend.get_vocab(with_added_tokens=False) | {model.unk_token: index}
    if isinstance(model, models.WordLevel):
        backend.model = models.WordLevel(vocab, unk_token=model.unk_token)
    else:
        backend.model = models.WordPiece(
            vocab,
            unk_token=model.unk_token,
            max_input_chars_per_word=model.max_input_chars_per_word,
            continuing_subword_prefix=model.continuing_subword_prefix,
        )


def _open_older(folder: Path, declared: Declared, piece_file: Path | None = None) -> Tokenizer:
    """`piece_file` is the SentencePiece model to open, where the folder has more than one."""
    files, path = _vocabulary_files(folder, declared)
    path = piece_file or path
    declared.apply_settings()
    named = declared.named_tokens()
    built = files.build(path, contents(named), declared.config, declared.added_ids())
    backend = built.backend
    for name, token in built.named_tokens.items():
        named.setdefault(name, AddedToken(token, special=True))
    declared.register(backend, named, ids_from=None if piece_file else path)  # declared ids are those of the source
    _apply_settings(backend, declared)
    if files.template is not None:
        files.template.wrap(backend, contents(named), declared.config)
    # special tokens that the vocabulary, or building, has and no file names: language codes, sentinels
    known = {content_of(token) for token in (*named.values(), *declared.extra)}
    added = [token for _, token in sorted(backend.get_added_tokens_decoder().items())]
    declared.extra += [token.content for token in added if token.special and token.content not in known]
    if piece_file is None:  # the same settings go for the target
        warn_of_unapplied(declared.config, declared.family, backend, rebuilt=True)
    if files.saved_class is None:
        declared.config.pop("tokenizer_class", None)
    tokenizer = _tokenizer(backend, declared, named, files.saved_class or _GENERAL_CLASS)
    tokenizer.source_files = built.source_files
    return tokenizer


def _vocabulary_files(folder: Path, declared: Declared) -> tuple[VocabularyFiles, Path]:
    """How to rebuild the tokenizer, and from which file. Guessing wrong would give wrong ids without a word: don't."""
    family = declared.family
    if family is not None and family.missing is not None:
        raise TokenizerError(
            f"The files announce the tokenizer {declared.announced}, which cannot be rebuilt from them: they lack "
            f"{family.missing}. Encode the text elsewhere and give the model its input_ids."
        )
    if family is not None and family.files is not None and (path := family.files.find(folder)) is not None:
        return family.files, path
    for format_, default in _FORMATS:
        path = format_.find(folder)
        if path is None:
            continue
        wordpiece = family is not None and format_ is WordPieceFiles  # vocab.txt is nothing else, whatever the family
        if family is not None and wordpiece and declared.announced in family.classes:
            log.warning("%s is read as BERT's vocabulary, though the files announce %s.", path, declared.announced)
        if wordpiece or declared.announced is None or declared.announced.startswith(_GENERAL_CLASSES):
            declared.family = default
            return (default.files if default is not None and default.files is not None else format_()), path
        raise TokenizerError(
            f"The files announce the tokenizer {declared.announced}, which cannot be rebuilt from {path.name}. "
            "Open it once with transformers and save it, which writes the tokenizer.json that can be opened."
        )
    present = sorted(item.name for item in folder.iterdir())
    raise TokenizerError(
        f"{folder} holds no tokenizer. One of these would do: {_FILE_NAMES}. "
        f"It has {', '.join(present[:10]) or 'no files'}{' and more' if len(present) > 10 else ''}."
    )


def _apply_settings(backend: tokenizers.Tokenizer, declared: Declared) -> None:
    """Settings of tokenizer_config.json that say how texts are cut."""
    backend.encode_special_tokens = bool(declared.config.get("split_special_tokens", False))
    if declared.family is not None and declared.family.override is not None:
        declared.family.override(backend, declared.config)


def _tokenizer(
    backend: tokenizers.Tokenizer,
    declared: Declared,
    named: Mapping[str, AddedToken | None],
    saved_class: str = _GENERAL_CLASS,
) -> Tokenizer:
    config, family = declared.config, declared.family
    inputs = config.get("model_input_names")
    if inputs is not None and not (isinstance(inputs, list) and all(isinstance(name, str) for name in inputs)):
        raise TokenizerError(f"model_input_names in tokenizer_config.json must be a list of names, not {inputs!r}.")
    languages = family.languages(config) if family is not None and family.languages is not None else None
    if family is not None and languages is not None:
        config["clearhead_family"] = family.name  # the general class, under which it is saved, does not tell
        if config.get("tgt_lang") not in (None, *languages.codes):
            log.warning("The tokenizer's tgt_lang, %r, is no language of this model.", config.pop("tgt_lang"))
    return Tokenizer(
        backend,
        config,
        named=contents(named),
        extra=[str(content_of(token)) for token in declared.extra],
        model_input_names=family.inputs if family is not None else ("input_ids", "attention_mask"),
        saved_class=saved_class,
        languages=languages,
    )
