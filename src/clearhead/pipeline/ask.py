"""Ask a question of a model that looks passages up: its answer, and the passages it had before it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from clearhead.errors import InputError
from clearhead.messages import say
from clearhead.models.retrieval import RetrievalModel
from clearhead.pipeline.batches import texts_of
from clearhead.pipeline.retrieval import PassageStore, RetrievedPassage, open_store

if TYPE_CHECKING:
    from clearhead.pipeline.text import TextPipeline

LONGEST = 40  # tokens of an answer
END = "\n"  # of an answer


@dataclass(frozen=True)
class RetrievedAnswer:
    """
    answer     what the model wrote
    passages   what it looked at while it wrote the first word, best first: text, document, position, score, source
    """

    answer: str
    passages: list[Any] = field(default_factory=list)


class RememberingStore:
    """A store that keeps what it has found.

    found   by what was asked
    """

    def __init__(self, store: PassageStore) -> None:
        self.store = store
        self.found: dict[str, list[RetrievedPassage]] = {}

    def search(self, text: str, *, k: int) -> Sequence[RetrievedPassage]:
        if text not in self.found:
            self.found[text] = list(self.store.search(text, k=k))
        return self.found[text]


def ask(
    pipe: TextPipeline, question: str | list[str], *, store: Any, neighbors: int | None = None, **options: Any
) -> RetrievedAnswer | list[RetrievedAnswer]:
    if not isinstance(pipe.model, RetrievalModel):
        raise InputError(say("generation.ask_needs_retro", title=pipe.title))
    questions = [one.strip() for one in texts_of(question)]
    if not all(questions):
        raise InputError(say("generation.empty_question"))
    remembering = None if store is None else RememberingStore(open_store(store))
    prompts = [question_prompt(pipe, one) for one in questions]
    options = {"max_new_tokens": LONGEST, "stop_strings": [END]} | options
    written = pipe.write(prompts, store=remembering, neighbors=neighbors, **options)
    each = len(written) // len(questions)  # more than one with num_return_sequences; the first is the best
    answers = [
        RetrievedAnswer(one.new_text.strip(), _passages(pipe, prompt, remembering))
        for prompt, one in zip(prompts, written[::each], strict=True)
    ]
    return answers if isinstance(question, list | tuple) else answers[0]


def question_prompt(pipe: TextPipeline, question: str) -> str:
    """The question as the model was taught to read one, filled up in front so that it ends with a chunk: what is
    retrieved for it acts on the first word of the answer.
    """
    assert isinstance(pipe.model, RetrievalModel)
    text = str(getattr(pipe.model.config, "question_template", "{question}")).replace("{question}", question)
    tokenizer = pipe.tokenizer
    if tokenizer.eos_token is None:
        raise InputError(say("generation.no_filler", title=pipe.title))
    return tokenizer.eos_token * (-len(tokenizer.encode(text)) % pipe.model.chunk_size) + text


def _passages(pipe: TextPipeline, prompt: str, store: RememberingStore | None) -> list[Any]:
    """What was found with the last chunk of a prompt."""
    if store is None:
        return []
    assert isinstance(pipe.model, RetrievalModel)
    chunk = pipe.tokenizer.encode(prompt)[-pipe.model.chunk_size :]
    return list(store.found.get(pipe.tokenizer.decode(chunk, skip_special_tokens=True), []))
