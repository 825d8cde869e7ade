"""Text in, text or vectors out: what `ch.load` returns for every family that reads tokens."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, overload

from torch import Tensor

from clearhead import hub
from clearhead.errors import ClearheadError, InputError, TokenizerError
from clearhead.generate import Grammar, PromptCache
from clearhead.messages import say
from clearhead.models import Model
from clearhead.pipeline.answer import answer
from clearhead.pipeline.ask import RetrievedAnswer, ask
from clearhead.pipeline.base import Pipeline, Reading
from clearhead.pipeline.classify import TEMPLATE, ScoredLabel, classify
from clearhead.pipeline.embed import embed
from clearhead.pipeline.fill import MaskFill, fill
from clearhead.pipeline.generation import GeneratedText, TextGeneration
from clearhead.pipeline.prompts import encode_prompts, in_languages
from clearhead.pipeline.reading import read_text
from clearhead.pipeline.retrieval import neighbors_of
from clearhead.pipeline.search import SearchHit, search
from clearhead.pipeline.tag import Entity, tag
from clearhead.pipeline.translate import summarize, translate
from clearhead.text import Tokenizer, has_tokenizer, load_tokenizer
from clearhead.text.builders.word_list import WordList

log = logging.getLogger("clearhead")

OWN_STORE: Any = object()  # of a call that names no store: the pipeline's

# task of the head -> the method that does its job
JOBS = {
    "sequence-classification": "classify",
    "token-classification": "tag",
    "question-answering": "answer",
    "masked-lm": "fill",
    "pretraining": "fill",
    "causal-lm": "generate",
    "seq2seq-lm": "generate",
    "features": "embed",
}


class TextPipeline(Pipeline):
    """`tokenizer` is its codec; what a translator writes is read by `tokenizer.target`."""

    codec: Tokenizer | None
    reads_text = True

    def __init__(
        self,
        model: Model,
        tokenizer: Tokenizer | None,
        name: str = "",
        sentence: hub.SentenceModules | None = None,
        no_tokenizer: str = "",
    ) -> None:
        """no_tokenizer: why there is none, where files of one were there."""
        super().__init__(model, tokenizer, name)
        self.store: Any = None  # where a model that retrieves looks, unless a call says otherwise
        self.sentence = sentence
        self._no_tokenizer = no_tokenizer

    @classmethod
    def from_folder(cls, folder: os.PathLike[str], model: Model, name: str = "") -> TextPipeline:
        where, missing, tokenizer = hub.transformer_folder(Path(folder)), "", None
        try:
            if has_tokenizer(where):
                tokenizer = load_tokenizer(where)
        except ClearheadError as error:  # the model takes token ids
            missing = str(error)
            log.warning("The model is loaded without its tokenizer, so it takes token ids only. %s", missing)
        sentence = hub.read_sentence(Path(folder), model.dtype, model.device) if model.task == "features" else None
        return cls(model, tokenizer, name, sentence, missing)

    @property
    def tokenizer(self) -> Tokenizer:
        if self.codec is None:
            raise TokenizerError(self._no_tokenizer or say("generation.no_tokenizer", title=self.title))
        return self.codec

    def count_units(self, text: str, /) -> int:
        return len(self.tokenizer.encode(text))

    def read(self, text: str, pair: str | None = None, target: str | None = None) -> Reading:
        """How the model reads a text, or a pair of texts.

        target   of an encoder–decoder: what it is made to write. Without one it writes its own answer first.
        """
        return read_text(self, text, pair, target)

    @overload
    def generate(self, text: str | None = None, **options: Any) -> str: ...
    @overload
    def generate(self, text: list[str], **options: Any) -> list[str]: ...
    def generate(self, text: str | list[str] | None = None, **options: Any) -> str | list[str]:
        """Continue a text (or answer it, for an encoder–decoder). Without a text, write from nothing.

        A list of texts gives a list; num_return_sequences above 1 too. Options: clearhead.generate.Options; for models
        that know languages src_lang and tgt_lang (by default those of the tokenizer); and one of these for an answer of
        a given form: choices=["yes", "no"], regex=r"\\d+", json_schema={…}. A RETRO takes store= and neighbors=, where
        it looks passages up and how many for every chunk. `write` tells more than the text.
        """
        texts = [written.text for written in self.start_generation(text, log_probs=False, **options).finish()]
        return texts[0] if len(texts) == 1 and not isinstance(text, list | tuple) else texts

    def write(self, text: str | list[str] | None = None, **options: Any) -> list[GeneratedText]:
        """Like `generate`, with everything that is known of each answer."""
        return self.start_generation(text, **options).finish()

    def stream(self, text: str | None = None, **options: Any) -> Iterator[str]:
        """The new text, piece by piece, as it is written. Closing it early is fine: what was shown stands."""
        if isinstance(text, list | tuple) or (options.get("num_return_sequences") or 1) != 1:
            raise InputError("A stream writes one text. For several, use generate.")
        if options.get("num_beams") is None:  # what the checkpoint prefers does not keep a stream from streaming
            options["num_beams"] = 1
        options["num_return_sequences"] = 1
        generation = self.start_generation(text, log_probs=False, **options)
        if generation.options.num_beams > 1:
            raise InputError(say("generation.beams_do_not_stream"))
        return generation.pieces()

    def start_generation(
        self,
        text: str | list[str] | None = None,
        *,
        past: PromptCache | None = None,
        log_probs: bool = True,
        truncation: bool = False,
        preferred: Mapping[str, Any] | None = None,
        store: Any = OWN_STORE,
        neighbors: int | None = None,
        **options: Any,
    ) -> TextGeneration:
        """A call of `generate` that has not begun: its `pieces` as they come, or its `answers` when it is `finish`ed.

        past        what earlier calls have read, to be used again where the text begins the same
        log_probs   whether the probability of every token is kept
        truncation  an encoder–decoder's text that is too long is cut, and a warning says so
        preferred   options that count where the call is silent, before those of generation_config.json
        store       where a model that retrieves looks passages up: a store or its folder; None: nowhere
        neighbors   how many passages it looks at for every chunk (2)
        """
        options = {name: value for name, value in _with_grammar(options).items() if value is not None}
        reader, options = self.in_languages(options)
        provider = neighbors_of(self, self.store if store is OWN_STORE else store, neighbors)
        prompts, ids, mask = self.encode_prompts(text, reader, truncation)
        return TextGeneration(
            self.model, self.tokenizer.target, prompts, ids, mask, options, past=past, log_probs=log_probs,
            preferred=preferred, neighbors=provider,
        )  # fmt: skip

    def in_languages(self, options: dict[str, Any]) -> tuple[Tokenizer | None, dict[str, Any]]:
        """The tokenizer for the language forms for, and options that make the model write the other one."""
        return in_languages(self, options)

    def encode_prompts(
        self, text: str | list[str] | None, reader: Tokenizer | None = None, truncation: bool = False
    ) -> tuple[list[str], Tensor, Tensor]:
        """The texts, their ids padded on the left, and which of these are real."""
        return encode_prompts(self, text, reader, truncation)

    @overload
    def fill(self, text: str, top_k: int = 5, *, batch_size: int = 32) -> list[list[MaskFill]]: ...
    @overload
    def fill(self, text: list[str], top_k: int = 5, *, batch_size: int = 32) -> list[list[list[MaskFill]]]: ...
    def fill(
        self, text: str | list[str], top_k: int = 5, *, batch_size: int = 32
    ) -> list[list[MaskFill]] | list[list[list[MaskFill]]]:
        """The likeliest words for each mask in the text, best first; of a list of texts, a list of these.

        In a text that is too long, a mask is read in the window where it has more context.
        """
        return fill(self, text, top_k, batch_size)

    def embed(
        self,
        texts: str | list[str],
        *,
        pooling: str | None = None,
        normalize: bool | None = None,
        prompt: str | None = None,
        batch_size: int = 32,
    ) -> Tensor:
        """One vector for each text, (texts, width), or (width,) for a single one.

        A Sentence-BERT folder says itself how to pool, project and normalise; any other model averages its last
        hidden states over the real tokens. Texts are cut at the length the model can read.

        pooling     another way to pool: "mean", "cls", "max", "lasttoken" … (see clearhead.models.sentence)
        normalize   to unit length or not, whatever the folder says
        prompt      put before each text: the name of one of the folder's prompts, or the words themselves
        """
        return embed(self, texts, pooling=pooling, normalize=normalize, prompt=prompt, batch_size=batch_size)

    @overload
    def classify(
        self, text: str, pair: str | None = None, *, labels: Sequence[str] | None = None, template: str = TEMPLATE,
        batch_size: int = 32,
    ) -> list[ScoredLabel]: ...  # fmt: skip
    @overload
    def classify(
        self, text: list[str], pair: list[str] | None = None, *, labels: Sequence[str] | None = None,
        template: str = TEMPLATE, batch_size: int = 32,
    ) -> list[list[ScoredLabel]]: ...  # fmt: skip
    def classify(
        self,
        text: str | list[str],
        pair: str | list[str] | None = None,
        *,
        labels: Sequence[str] | None = None,
        template: str = TEMPLATE,
        batch_size: int = 32,
    ) -> list[ScoredLabel] | list[list[ScoredLabel]]:
        """All labels, best first, each with its probability; a list of texts gives a list of these.

        A model for several labels at once gives each its own probability, a regression its number. Texts that are too
        long are cut, with a warning.

        pair       a second text, for models that judge two; with a list of texts, a list of as many
        labels     names of your own, to be ranked by a language model or a classifier with a label "entailment";
                   their probabilities sum to 1 (pipeline/label_words.py says how words are scored)
        template   with labels: a sentence with {} for the label, which stands after the text
        """
        return classify(self, text, pair, labels=labels, template=template, batch_size=batch_size)

    @overload
    def tag(self, text: str, *, words: bool = False, batch_size: int = 32) -> list[Entity]: ...
    @overload
    def tag(self, text: list[str], *, words: bool = False, batch_size: int = 32) -> list[list[Entity]]: ...
    def tag(
        self, text: str | list[str], *, words: bool = False, batch_size: int = 32
    ) -> list[Entity] | list[list[Entity]]:
        """The entities of a text in order; a list of texts gives a list of lists.

        A word has the tag of its first piece, B- and I- of one label make up an entity, O is left out. A text that is
        too long is read in windows that overlap.

        words   every word with its tag as it is, B- and O included, in place of the entities
        """
        return tag(self, text, words=words, batch_size=batch_size)

    def answer(
        self,
        question: str | list[str],
        passage: str | list[str],
        *,
        top_k: int = 1,
        max_answer_len: int = 15,
        max_seq_len: int = 384,
        doc_stride: int = 128,
        handle_impossible_answer: bool | None = None,
        batch_size: int = 32,
    ) -> Any:
        """The span of the passage that answers the question: an `Answer`; with top_k above 1 the best of them, a list.

        Several passages are ranked together, and `passage` says which it is. A list of questions takes a list of
        as many passages and gives a list.

        max_answer_len             the longest answer in tokens (made longer to whole words)
        max_seq_len, doc_stride    a long passage is read in windows of so many tokens, which overlap by so many
        handle_impossible_answer   whether "" may be the answer; by default, where the model was trained for it
        """
        return answer(
            self, question, passage, top_k=top_k, max_answer_len=max_answer_len, max_seq_len=max_seq_len,
            doc_stride=doc_stride, handle_impossible_answer=handle_impossible_answer, batch_size=batch_size,
        )  # fmt: skip

    @overload
    def ask(self, question: str, **options: Any) -> RetrievedAnswer: ...
    @overload
    def ask(self, question: list[str], **options: Any) -> list[RetrievedAnswer]: ...
    def ask(
        self, question: str | list[str], *, store: Any = OWN_STORE, neighbors: int | None = None, **options: Any
    ) -> RetrievedAnswer | list[RetrievedAnswer]:
        """A RETRO's `answer` to a question, and the `passages` that it looked at, best first; of a list, a list.

        store       where it looks passages up: a store, its folder, or a shipped name; None: from its weights alone
        neighbors   how many passages (2). Further options are those of `generate`
        """
        store = self.store if store is OWN_STORE else store
        return ask(self, question, store=store, neighbors=neighbors, **options)

    @overload
    def translate(self, text: str, **options: Any) -> str: ...
    @overload
    def translate(self, text: list[str], **options: Any) -> list[str]: ...
    def translate(self, text: str | list[str], **options: Any) -> str | list[str]:
        """What an encoder–decoder makes of a text; a list of texts gives a list. Options are those of `generate`.

        src_lang, tgt_lang   of models that know several languages. Where config.json lists translations, as T5's does,
                             its words are put before the text. A text too long for the encoder is cut, with a warning
        """
        return translate(self, text, **options)

    @overload
    def summarize(self, text: str, **options: Any) -> str: ...
    @overload
    def summarize(self, text: list[str], **options: Any) -> list[str]: ...
    def summarize(self, text: str | list[str], **options: Any) -> str | list[str]:
        """A summary by an encoder–decoder, as `translate`: what config.json says of summarization is honoured."""
        return summarize(self, text, **options)

    @overload
    def search(
        self, query: str, texts: Sequence[str], *, top_k: int = 10, vectors: Tensor | None = None, batch_size: int = 32
    ) -> list[SearchHit]: ...
    @overload
    def search(
        self, query: list[str], texts: Sequence[str], *, top_k: int = 10, vectors: Tensor | None = None,
        batch_size: int = 32,
    ) -> list[list[SearchHit]]: ...  # fmt: skip
    def search(
        self,
        query: str | list[str],
        texts: Sequence[str],
        *,
        top_k: int = 10,
        vectors: Tensor | None = None,
        batch_size: int = 32,
    ) -> list[SearchHit] | list[list[SearchHit]]:
        """The texts nearest in meaning, best first, each with its cosine.

        vectors   pipe.embed(texts), kept from before: then only the query is embedded
        """
        return search(self, query, texts, top_k=top_k, vectors=vectors, batch_size=batch_size)

    def __call__(self, *inputs: Any, **options: Any) -> Any:
        """The job that its head was made for: classify, tag, answer, fill, generate or embed."""
        given = len(inputs) + len({"question", "passage"} & options.keys())
        return getattr(self, _job_of(self, given))(*inputs, **options)

    def save(self, folder: str | os.PathLike[str], overwrite: bool = False, format: str | None = None) -> None:
        """Write config.json, model.safetensors and the tokenizer's files (see `Pipeline.save`).

        A name that ends in .pth makes one file, as fastai has it, and its words beside it (name.vocab.json).
        """
        if isinstance(folder, str | os.PathLike) and Path(folder).suffix == ".pth" and format is None:
            source = None if self.codec is None else self.codec.source_files
            hub.save_fastai(self.model, folder, source.words if isinstance(source, WordList) else None, overwrite)
            return
        model = hub.in_format(self.model, format)
        hub.save_model(model, folder, self.codec, sentence=self.sentence, overwrite=overwrite)


def _job_of(pipe: TextPipeline, texts: int) -> str:
    """The method that does the job of its head. texts: how many are given"""
    job = JOBS.get(pipe.model.task)
    if job is None:
        raise InputError(
            f"{pipe.title} is loaded for {pipe.model.task}, which is no job with a text alone: call .model(…), "
            "or load it for another task."
        )
    if job == "answer" and texts < 2:
        raise InputError(f"{pipe.title} answers a question about a passage: pipe(question, passage).")
    return job


def as_text(pipe: Pipeline) -> TextPipeline:
    """The same, where it reads text; an error for one that does not."""
    if not isinstance(pipe, TextPipeline):
        raise InputError(say(pipe.no_text, title=pipe.title))
    return pipe


def _with_grammar(options: dict[str, Any]) -> dict[str, Any]:
    """The short constructors to say what form the answer has, made into a grammar."""
    for name in ("return_dict_in_generate", "output_scores", "output_logits"):
        if options.get(name):
            raise InputError(
                f"{name} speaks of tensors: use .model.generate, or .write for tokens and their probabilities."
            )
    constructors: dict[str, Any] = {"choices": Grammar.choices, "regex": Grammar.regex, "json_schema": Grammar.json}
    forms = [name for name in (*constructors, "grammar") if options.get(name) is not None]
    if len(forms) > 1:
        raise InputError(f"Give one form for the answer: {forms[0]} or {forms[1]}, not both.")
    rest = {name: value for name, value in options.items() if name not in constructors}
    return rest | {"grammar": constructors[forms[0]](options[forms[0]])} if forms and forms[0] in constructors else rest
