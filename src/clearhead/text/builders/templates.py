"""What encoding puts around a text: special tokens before it, after it, and between the two of a pair."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import tokenizers
from tokenizers import processors

from clearhead.errors import TokenizerError
from clearhead.text.languages import Languages

Tokens = Mapping[str, str | None]  # special tokens by their names: bos_token, eos_token …
Config = Mapping[str, Any]  # what tokenizer_config.json says


class Wrapper(Protocol):
    """One way to put special tokens around a text."""

    def wrap(self, backend: tokenizers.Tokenizer, tokens: Tokens, config: Config) -> None: ...


@dataclass(frozen=True)
class Template:
    """Special tokens by their short names, `$A` and `$B` for the texts, and after a colon the segment of each."""

    single: str
    pair: str

    def wrap(self, backend: tokenizers.Tokenizer, tokens: Tokens, config: Config) -> None:
        names = [part.partition(":")[0] for part in self.single.split() if not part.startswith("$")]
        known = _known(backend, tokens, names)

        def written(template: str) -> list[str]:
            parts = (part.partition(":") for part in template.split())
            return [f"{known[name][0] if name in known else name}{colon}{segment}" for name, colon, segment in parts]

        backend.post_processor = processors.TemplateProcessing(
            single=written(self.single), pair=written(self.pair), special_tokens=list(known.values())
        )


@dataclass(frozen=True)
class RobertaTemplate:
    """`<s> text </s>`, and `<s> text </s></s> pair </s>`, with the spaces of byte-level tokens left out of offsets."""

    def wrap(self, backend: tokenizers.Tokenizer, tokens: Tokens, config: Config) -> None:
        known = _known(backend, tokens, ["cls", "sep"])
        backend.post_processor = processors.RobertaProcessing(
            known["sep"],
            known["cls"],
            trim_offsets=bool(config.get("trim_offsets", True)),
            add_prefix_space=bool(config.get("add_prefix_space", False)),
        )


@dataclass(frozen=True)
class ClipTemplate:
    """RoBERTa's, with CLIP's marks, and with offsets as they are."""

    def wrap(self, backend: tokenizers.Tokenizer, tokens: Tokens, config: Config) -> None:
        known = _known(backend, tokens, ["bos", "eos"])
        backend.post_processor = processors.RobertaProcessing(
            known["eos"], known["bos"], trim_offsets=False, add_prefix_space=False
        )


@dataclass(frozen=True)
class BosEosTemplate:
    """Begins each text with the first token, ends it with the last, or both, as the configuration says.

    bos   whether texts begin with it where the configuration is silent
    """

    bos: bool = False

    def wrap(self, backend: tokenizers.Tokenizer, tokens: Tokens, config: Config) -> None:
        def added(name: str, default: bool) -> list[tuple[str, int]]:
            token = tokens.get(f"{name}_token") if config.get(f"add_{name}_token", default) else None
            index = None if token is None else backend.token_to_id(token)
            return [] if token is None or index is None else [(token, index)]

        before, after = added("bos", self.bos), added("eos", False)

        def around(text: str, segment: int) -> list[str]:
            return [f"{part}:{segment}" for part in (*(t for t, _ in before), text, *(t for t, _ in after))]

        backend.post_processor = processors.TemplateProcessing(
            single=around("$A", 0), pair=around("$A", 0) + around("$B", 1), special_tokens=[*before, *after]
        )


@dataclass(frozen=True)
class LanguageTemplate:
    """The end token and the code of the language, where the family puts them."""

    languages: Callable[[Config], Languages]

    def wrap(self, backend: tokenizers.Tokenizer, tokens: Tokens, config: Config) -> None:
        languages = self.languages(config)
        languages.wrap(backend, config.get("src_lang") or languages.default, str(tokens.get("eos_token")))


BERT = Template("cls:0 $A:0 sep:0", "cls:0 $A:0 sep:0 $B:1 sep:1")
XLNET = Template("$A:0 sep:0 cls:2", "$A:0 sep:0 $B:1 sep:1 cls:2")  # the class token has a segment of its own
XLM_ROBERTA = Template("cls $A sep", "cls $A sep sep $B sep")
ROBERTA = RobertaTemplate()
BOS_EOS = BosEosTemplate()
CLIP = ClipTemplate()
END_EACH = Template("$A eos", "$A eos $B eos")
END_ONCE = Template("$A eos", "$A $B eos")


def _known(backend: tokenizers.Tokenizer, tokens: Tokens, names: list[str]) -> dict[str, tuple[str, int]]:
    """The special tokens of these short names, with their ids."""
    texts = {name: tokens.get(f"{name}_token") or f"{name}_token" for name in names}
    ids = {name: backend.token_to_id(text) for name, text in texts.items()}
    missing = [texts[name] for name, index in ids.items() if index is None]
    if missing:
        raise TokenizerError(
            f"The vocabulary has no {' and no '.join(missing)}, which this kind of tokenizer puts around a text. "
            "If they have other names, set them in tokenizer_config.json."
        )
    return {name: (texts[name], index) for name, index in ids.items() if index is not None}
