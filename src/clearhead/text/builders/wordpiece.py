"""WordPiece from the vocab.txt that BERT was published with."""

from dataclasses import dataclass
from pathlib import Path

import tokenizers
from tokenizers import decoders, models, normalizers, pre_tokenizers

from clearhead.errors import TokenizerError
from clearhead.text.builders.templates import BERT, Config, Tokens
from clearhead.text.builders.vocabulary_files import Built, Ids, VocabularyFiles, with_unknown
from clearhead.text.files import read_text


@dataclass(frozen=True)
class WordPieceFiles(VocabularyFiles):
    """vocab.txt: one token per line."""

    saved_class: str | None = "BertTokenizer"

    @staticmethod
    def find(folder: Path) -> Path | None:
        path = folder / "vocab.txt"
        return path if path.is_file() else None

    def build(self, path: Path, tokens: Tokens, config: Config, added: Ids) -> Built:
        unknown = tokens.get("unk_token")
        vocab = with_unknown(read_vocab(path), unknown, added)
        if unknown is None or unknown not in vocab:
            raise TokenizerError(
                f"{path} has no line for the unknown token {unknown}. It is damaged, or is not a BERT vocabulary; "
                "if the token has another name, set unk_token in tokenizer_config.json."
            )
        return Built(
            wordpiece(
                vocab,
                tokens,
                lowercase=bool(config.get("do_lower_case", True)),
                strip_accents=config.get("strip_accents"),
                chinese=bool(config.get("tokenize_chinese_chars", True)),
            )
        )


def read_vocab(path: Path) -> dict[str, int]:
    """One token per line; the line number is the id. As in BERT, a repeated token keeps its last id."""
    lines = read_text(path).split("\n")
    if lines[-1] == "":
        lines.pop()
    if not lines:
        raise TokenizerError(f"{path} is empty, so there is no vocabulary. Download the file again.")
    return {token: index for index, token in enumerate(lines)}


def wordpiece(
    vocab: dict[str, int],
    tokens: Tokens,
    *,
    lowercase: bool,
    strip_accents: bool | None = None,
    chinese: bool = True,
) -> tokenizers.Tokenizer:
    """BERT's pipeline around a vocabulary."""
    backend = tokenizers.Tokenizer(models.WordPiece(vocab, unk_token=str(tokens["unk_token"])))
    backend.normalizer = normalizers.BertNormalizer(
        clean_text=True, handle_chinese_chars=chinese, strip_accents=strip_accents, lowercase=lowercase
    )
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    backend.decoder = decoders.WordPiece(prefix="##")
    if tokens.get("cls_token") in vocab and tokens.get("sep_token") in vocab:
        BERT.wrap(backend, tokens, {})
    return backend
