"""The contract of older vocabulary files: how a folder is recognised, and how a tokenizer is rebuilt from them."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import tokenizers

from clearhead.text.backend import SourceFiles
from clearhead.text.builders.templates import Config, Tokens, Wrapper

Ids = Mapping[str, int]


@dataclass(frozen=True)
class Built:
    """
    backend        the tokenizer, before added tokens and before anything is put around a text
    named_tokens   special tokens that the vocabulary itself names
    source_files   how to write it down, where the wrapped library cannot
    """

    backend: tokenizers.Tokenizer
    named_tokens: Mapping[str, str] = field(default_factory=dict)
    source_files: SourceFiles | None = None


@dataclass(frozen=True)
class VocabularyFiles(ABC):
    """
    template      what is put around a text, where building has not said it yet
    saved_class   under which class of `transformers` it is saved; None: under the general one, which opens
                  tokenizer.json as it is where the class of its own would rebuild something else
    """

    template: Wrapper | None = None
    saved_class: str | None = None

    @staticmethod
    @abstractmethod
    def find(folder: Path) -> Path | None:
        """The file that holds the vocabulary; None where the folder has none of this format."""

    @abstractmethod
    def build(self, path: Path, tokens: Tokens, config: Config, added: Ids) -> Built:
        """The tokenizer of the file that `find` gave, with these special tokens and settings.

        added   tokens that follow the vocabulary, with their ids: one of them may be the unknown token
        """


def with_unknown(vocab: dict[str, int], unknown: str | None, added: Ids) -> dict[str, int]:
    """The vocabulary, with the unknown token and all before it where that one is an added token."""
    if unknown is None or unknown in vocab or unknown not in added:
        return vocab
    last = max(vocab.values(), default=-1)
    return vocab | {token: index for token, index in added.items() if last < index <= added[unknown]}
