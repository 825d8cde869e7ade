"""Languages of a translator: the codes it knows, and where the code of one stands around a text."""

from dataclasses import dataclass

import tokenizers
from tokenizers import processors

from clearhead.errors import InputError, did_you_mean
from clearhead.messages import say


@dataclass(frozen=True)
class Languages:
    """
    codes             every language, in the order of their ids
    default           the language of a text when nobody says
    code_first        the code comes first, the end token last; otherwise the end token, and the code after it
    form              how a code is written as a token
    starts_decoder    the code of the target is what a decoder starts from, rather than what it must write first
    """

    codes: tuple[str, ...]
    default: str
    code_first: bool = True
    form: str = "{}"
    starts_decoder: bool = False

    def token(self, code: str) -> str:
        if code not in self.codes:
            near = did_you_mean(str(code), self.codes)
            known = list(self.codes[:8])
            raise InputError(say("generation.unknown_language", code=repr(code), near=near, known=known))
        return self.form.format(code)

    def tokens(self) -> list[str]:
        return [self.form.format(code) for code in self.codes]

    def wrap(self, backend: tokenizers.Tokenizer, code: str, end: str) -> None:
        """Puts the end token and the code of this language around every text that `backend` encodes."""
        token = self.token(code)
        before, after = ([token], [end]) if self.code_first else ([], [end, token])
        ids = {name: backend.token_to_id(name) for name in (token, end)}
        missing = [name for name, index in ids.items() if index is None]
        if missing:
            raise InputError(f"The vocabulary has no {' and no '.join(missing)}, which this tokenizer writes.")
        backend.post_processor = processors.TemplateProcessing(
            single=[*before, "$A", *after], pair=[*before, "$A", "$B", *after], special_tokens=list(ids.items())
        )
