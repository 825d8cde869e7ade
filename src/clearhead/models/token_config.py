"""What the configurations of token models share: a vocabulary with its special tokens, and a stack of layers."""

from dataclasses import dataclass

from clearhead.errors import ConfigError
from clearhead.models.config import Config

MOST_LAYERS = 100_000


@dataclass(kw_only=True)
class VocabularyConfig(Config):
    """A model that reads or writes token ids."""

    vocab_size: int
    bos_token_id: int | None = None
    eos_token_id: int | list[int] | None = None
    pad_token_id: int | None = None
    sep_token_id: int | None = None
    # what generate obeys unless told otherwise
    forced_bos_token_id: int | None = None
    forced_eos_token_id: int | list[int] | None = None
    bad_words_ids: list[list[int]] | None = None
    tie_word_embeddings: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        self._at_least(1, "vocab_size")
        if self.pad_token_id == -1:  # how some files say that there is none
            self.pad_token_id = None

    def _padding_within(self, words: int) -> None:
        """The padding token has a row in a table of so many words."""
        if self.pad_token_id is not None and not 0 <= self.pad_token_id < words:
            raise ConfigError(
                f"{self._spelling('pad_token_id')} is {self.pad_token_id}, outside the vocabulary of {words}."
            )


@dataclass(kw_only=True)
class LayersConfig(Config):
    """A stack of layers with attention, whatever it reads."""

    hidden_size: int
    num_hidden_layers: int
    num_attention_heads: int

    def __post_init__(self) -> None:
        super().__post_init__()
        self._at_least(1, "hidden_size", "num_hidden_layers", "num_attention_heads")
        if self.num_hidden_layers > MOST_LAYERS:  # before anything is made for each of them
            raise ConfigError(
                f"{self._spelling('num_hidden_layers')} asks for {self.num_hidden_layers:,} layers; "
                "no model has so many."
            )

    def _divides(self, width: int, heads: int) -> None:
        if width % heads:
            raise ConfigError(
                f"{self._spelling('hidden_size')} is {width}, which {self._spelling('num_attention_heads')} = {heads} "
                "does not divide: the heads would not have equal sizes."
            )


@dataclass(kw_only=True)
class TokenConfig(VocabularyConfig, LayersConfig):
    """What BERT, GPT-2, T5 and their relatives share."""
