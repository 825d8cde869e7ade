"""Opens a tokenizer from a folder: tokenizer.json if it is there, the older files of each model otherwise."""

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tokenizers
from tokenizers import AddedToken, models, normalizers, pre_tokenizers, processors

from clearhead.errors import TokenizerError, TokenizerNotBuilt
from clearhead.text.backend import Recipe
from clearhead.text.byte_bpe import build_byte_bpe, wrap_like_bert, wrap_like_roberta, wrap_with_bos_eos
from clearhead.text.families import Family, announced, by_name
from clearhead.text.files import library_errors, read_bytes, read_object
from clearhead.text.languages import languages_of
from clearhead.text.pieces import build_pieces, named_pieces
from clearhead.text.sentencepiece import read_sentencepiece
from clearhead.text.special import EXTRAS, NAMES, as_added, as_object, content_of, extra_tokens
from clearhead.text.tokenizer import TARGET_FOLDER, Tokenizer
from clearhead.text.word_bpe import build_word_bpe, read_ctrl
from clearhead.text.wordpiece import build_wordpiece

SENTENCEPIECE_FILES = (
    "spiece.model",
    "sentencepiece.bpe.model",
    "tokenizer.model",
    "source.spm",
    "spm.model",
    "sentencepiece.model",
)
_NAMES_OF_FILES = f"tokenizer.json, vocab.txt, vocab.json with merges.txt, or one of {', '.join(SENTENCEPIECE_FILES)}"
_GENERIC = ("PreTrainedTokenizer", "TokenizersBackend")
# their mask token takes the space before it
_SWALLOWS_SPACE = "roberta mpnet xlm-roberta xlnet albert big_bird mbart mbart50 nllb deberta".split()


def load_tokenizer(folder: str | os.PathLike[str]) -> Tokenizer:
    """Opens the tokenizer in a folder. Nothing is downloaded, and nothing in the folder is ever executed."""
    where = Path(folder)
    if not where.is_dir():
        what = "is a file, not a folder" if where.exists() else "does not exist"
        raise TokenizerError(f"{where} {what}. Pass the folder that holds {_NAMES_OF_FILES}.")
    said = _Said.read(where)
    if (where / "tokenizer.json").is_file():
        tokenizer = _open_json(where / "tokenizer.json", said)
    else:
        tokenizer = _open_older(where, said)
    if (where / TARGET_FOLDER).is_dir():
        tokenizer = tokenizer.with_target(load_tokenizer(where / TARGET_FOLDER))
    elif not (where / "tokenizer.json").is_file() and (where / "source.spm").is_file():
        target = _Said.read(where)
        if (where / "target.spm").is_file():
            tokenizer = tokenizer.with_target(_open_older(where, target, "target.spm"))
    return tokenizer


@dataclass
class _Said:
    """What the small files around a vocabulary say."""

    config: dict[str, Any]
    declared: dict[str, Any]  # special tokens that a file names, by name; a null unsets one
    extra: list[Any]
    added: list[tuple[int, AddedToken]]
    family: Family | None
    announced: str | None

    @classmethod
    def read(cls, where: Path) -> "_Said":
        config = _optional(where / "tokenizer_config.json")
        family, name = announced(config, _optional(where / "config.json"))
        tokens = dict(config)
        listed = config.get("added_tokens_decoder")
        if listed is None:
            # once a configuration lists every added token, the two older files are out of date
            tokens |= _optional(where / "special_tokens_map.json")
        declared = {key: tokens[key] for key in NAMES if key in tokens}
        extra = extra_tokens(tokens, "tokenizer_config.json or special_tokens_map.json")
        if listed is None:
            special = {content_of(value) for value in (*declared.values(), *extra)}
            added = _from_added_tokens_json(where / "added_tokens.json", special)
        else:
            added = _from_decoder(where / "tokenizer_config.json", listed)
        for key, value in (family.settings if family else {}).items():
            config.setdefault(key, value)
        return cls(config, declared, extra, added, family, name)


def _optional(path: Path) -> dict[str, Any]:
    return read_object(path) if path.is_file() else {}


def _from_decoder(path: Path, listed: Any) -> list[tuple[int, AddedToken]]:
    """The tokens of added_tokens_decoder, by id."""
    if not isinstance(listed, dict):
        raise TokenizerError(f"added_tokens_decoder in {path} must be an object, but it is {listed!r}.")
    added = []
    for index, token in listed.items():
        if not str(index).isdecimal():
            raise TokenizerError(f"added_tokens_decoder in {path} has {index!r} where an id must be.")
        added.append((int(index), as_added(token, f"token {index} of added_tokens_decoder in {path}")))
    return sorted(added, key=lambda item: item[0])


def _from_added_tokens_json(path: Path, special: set[str | None]) -> list[tuple[int, AddedToken]]:
    """The tokens of added_tokens.json, by id; whether one is special is said elsewhere."""
    added = []
    for token, index in _optional(path).items():
        if not isinstance(index, int):
            raise TokenizerError(f"{path} gives {token!r} the id {index!r}; an id is a whole number.")
        added.append((index, as_added(token, f"a token in {path}", special=token in special)))
    return sorted(added, key=lambda item: item[0])


def _open_json(path: Path, said: _Said) -> Tokenizer:
    data = read_bytes(path)
    with library_errors(path):
        backend = tokenizers.Tokenizer.from_buffer(data)
    if said.family is None and said.announced is None and isinstance(backend.model, models.WordPiece):
        said.family = by_name("bert")
    named = _names(said)
    padding, truncation = backend.padding, backend.truncation
    if padding is not None:
        named.setdefault("pad_token", AddedToken(padding["pad_token"], special=True))
        said.config.setdefault("padding_side", padding["direction"])
    if truncation is not None:
        said.config.setdefault("truncation_side", truncation["direction"])
    _apply_settings(backend, said)
    _register(backend, said, named, path)
    return _finish(backend, said, named)


def _open_older(where: Path, said: _Said, piece_file: str | None = None) -> Tokenizer:
    """`piece_file` is the SentencePiece model to open, where a folder has more than one."""
    if said.family is not None and said.family.missing is not None:
        raise TokenizerNotBuilt(
            f"The files say that this is a {said.announced} tokenizer, which cannot be rebuilt from them: they lack "
            f"{said.family.missing}. Encode the text elsewhere and give the model its input_ids."
        )
    names = SENTENCEPIECE_FILES if piece_file is None else (piece_file,)
    recipe: Recipe | None = None
    found = next((where / name for name in names if (where / name).is_file()), None)
    if (where / "vocab.txt").is_file():
        family = _expect(said, "vocab.txt", "bert")
        named = _names(said)
        backend = build_wordpiece(where / "vocab.txt", _contents(named), said.config)
        _register(backend, said, named, where / "vocab.txt", ids_must_match=True)
        saved_class = "BertTokenizer"
        if family is not None and family.like_roberta:
            wrap_like_roberta(backend, _contents(named), {})
            saved_class = family.classes[0]
    elif (where / "vocab.json").is_file() and (where / "merges.txt").is_file():
        family = _expect(said, "merges.txt", "gpt2")
        named = _names(said)
        kind = family.name if family is not None else "gpt2"
        unknown = content_of(named.get("unk_token")) or "<unk>"
        with library_errors(where / "vocab.json"):
            if kind == "openai-gpt":
                backend = build_word_bpe(where, unknown)
            elif kind == "ctrl":
                recipe = read_ctrl(where, unknown)
                backend = recipe.build()
            else:
                backend = build_byte_bpe(where)
        _register(backend, said, named, where / "vocab.json", ids_must_match=True)
        _apply_settings(backend, said)
        if kind in ("openai-gpt", "ctrl"):
            saved_class = "OpenAIGPTTokenizer" if kind == "openai-gpt" else "CTRLTokenizer"
        elif kind == "roberta":
            wrap_like_roberta(backend, _contents(named), said.config)
            saved_class = "RobertaTokenizer"
        elif kind == "deberta":
            wrap_like_bert(backend, _contents(named))
            saved_class = "PreTrainedTokenizerFast"  # transformers' own class would put two [SEP] between a pair
            said.config.pop("tokenizer_class", None)
        else:
            bos, eos = (bool(said.config.get(key, False)) for key in ("add_bos_token", "add_eos_token"))
            wrap_with_bos_eos(backend, _contents(named), bos=bos, eos=eos)
            saved_class = "GPT2Tokenizer"
    elif found is not None:
        family = _expect(said, "sentencepiece", None)
        if family is not None and family.name in ("marian", "m2m_100") and not (where / "vocab.json").is_file():
            raise TokenizerError(f"{where} has {found.name} but no vocab.json, where {family.name} keeps its ids.")
        model = read_sentencepiece(found)
        named = _names(said)
        for name, token in named_pieces(model).items():
            named.setdefault(name, AddedToken(token, special=True))
        backend = build_pieces(found, model, family.name if family else None, _contents(named), said.config)
        _register(backend, said, named, found, ids_must_match=True)
        known = {content_of(token) for token in (*named.values(), *said.extra)}
        added = backend.get_added_tokens_decoder()
        said.extra += [added[n].content for n in sorted(added) if added[n].special and added[n].content not in known]
        # `transformers` rebuilds these from the vocabulary alone; the general class opens tokenizer.json as it is
        saved_class = "PreTrainedTokenizerFast"
        said.config.pop("tokenizer_class", None)
    else:
        there = sorted(item.name for item in where.iterdir())
        raise TokenizerError(
            f"{where} holds no tokenizer. One of these would do: {_NAMES_OF_FILES}. "
            f"It has {', '.join(there[:10]) or 'no files'}{' and more' if len(there) > 10 else ''}."
        )
    tokenizer = _finish(backend, said, named, saved_class)
    tokenizer.recipe = recipe
    return tokenizer


def _expect(said: _Said, legacy: str, default: str | None) -> Family | None:
    """The family to build from older files. Guessing wrong would give wrong ids without a word, so don't."""
    if said.family is not None and said.family.legacy == legacy:
        return said.family
    if said.announced is None or said.announced.startswith(_GENERIC):
        said.family = None if default is None else by_name(default)
        return said.family
    raise TokenizerError(
        f"The files say that this is a {said.announced} tokenizer, which cannot be rebuilt from its older files. "
        "Open it once with transformers and save it, which writes the tokenizer.json that can be opened."
    )


def _names(said: _Said) -> dict[str, AddedToken | None]:
    """The named special tokens: what files declare, and the family's names for the rest."""
    swallows = said.family is not None and said.family.name in _SWALLOWS_SPACE
    known = {token.content: token for _, token in said.added}
    named: dict[str, AddedToken | None] = {}
    for name, value in {**(said.family.tokens if said.family else {}), **said.declared}.items():
        content = content_of(value)
        if content in known:
            named[name] = known[content]
        elif content is None:
            named[name] = None
        elif name == "mask_token" and swallows and isinstance(value, str):
            named[name] = AddedToken(content, lstrip=True, normalized=False, special=True)
        else:
            named[name] = as_added(value, f"{name} in tokenizer_config.json", special=True)
    return named


def _contents(named: Mapping[str, AddedToken | None]) -> dict[str, str | None]:
    return {name: content_of(token) for name, token in named.items()}


def _register(
    backend: tokenizers.Tokenizer,
    said: _Said,
    named: dict[str, AddedToken | None],
    path: Path,
    ids_must_match: bool = False,
) -> None:
    """Tells the wrapped tokenizer about added and special tokens. A family's names that it lacks are dropped."""
    there = {token.content: as_object(token) for token in backend.get_added_tokens_decoder().values()}
    backend.add_tokens([token for _, token in said.added if there.get(token.content) != as_object(token)])
    if ids_must_match:
        for index, token in said.added:
            if backend.token_to_id(token.content) != index:
                raise TokenizerError(
                    f"The added token {token.content!r} should have id {index}, but after {path} it gets "
                    f"{backend.token_to_id(token.content)}. The files do not belong together."
                )
    there |= {token.content: as_object(token) for _, token in said.added}
    for name, known_token in list(named.items()):
        if known_token is None or known_token.content in there:
            continue
        if name in said.declared or backend.token_to_id(known_token.content) is not None:
            backend.add_special_tokens([known_token])
        else:
            named[name] = None
    extra = [as_added(token, " or ".join(EXTRAS), special=True) for token in said.extra]
    backend.add_special_tokens([token for token in extra if token.content not in there])


def _apply_settings(backend: tokenizers.Tokenizer, said: _Said) -> None:
    """Settings of tokenizer_config.json that overrule the pipeline, for the families where `transformers` does so."""
    config, family = said.config, said.family.name if said.family else None
    backend.encode_special_tokens = bool(config.get("split_special_tokens", False))
    normalizer, splitter, wrapper = backend.normalizer, backend.pre_tokenizer, backend.post_processor
    if family in ("bert", "distilbert", "mpnet") and isinstance(normalizer, normalizers.BertNormalizer):
        backend.normalizer = normalizers.BertNormalizer(
            clean_text=normalizer.clean_text,
            handle_chinese_chars=bool(config.get("tokenize_chinese_chars", normalizer.handle_chinese_chars)),
            strip_accents=config.get("strip_accents", normalizer.strip_accents),
            lowercase=bool(config.get("do_lower_case", normalizer.lowercase)),
        )
    if family in ("gpt2", "roberta", "deberta") and "add_prefix_space" in config:
        prefix = bool(config["add_prefix_space"])
        if isinstance(splitter, pre_tokenizers.ByteLevel):
            backend.pre_tokenizer = pre_tokenizers.ByteLevel(
                add_prefix_space=prefix, trim_offsets=splitter.trim_offsets, use_regex=splitter.use_regex
            )
        if isinstance(wrapper, processors.RobertaProcessing):
            state = json.loads(wrapper.__getstate__())
            backend.post_processor = processors.RobertaProcessing(
                tuple(state["sep"]),
                tuple(state["cls"]),
                trim_offsets=state["trim_offsets"],
                add_prefix_space=prefix,
            )


def _finish(
    backend: tokenizers.Tokenizer,
    said: _Said,
    named: Mapping[str, AddedToken | None],
    saved_class: str = "PreTrainedTokenizerFast",
) -> Tokenizer:
    inputs = said.config.get("model_input_names")
    if inputs is not None and not (isinstance(inputs, list) and all(isinstance(name, str) for name in inputs)):
        raise TokenizerError(f"model_input_names in tokenizer_config.json must be a list of names, not {inputs!r}.")
    languages = languages_of(said.family.name, said.config) if said.family else None
    if said.family is not None and languages is not None:
        said.config["clearhead_family"] = said.family.name  # the general class, under which it is saved, does not tell
    return Tokenizer(
        backend,
        said.config,
        named=_contents(named),
        extra=[str(content_of(token)) for token in said.extra],
        model_input_names=said.family.inputs if said.family else ("input_ids", "attention_mask"),
        saved_class=saved_class,
        languages=languages,
    )
