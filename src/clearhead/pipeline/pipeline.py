"""What `ch.load` returns: a model with its tokenizer, taking and giving text."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, overload

import torch
from torch import Tensor

from clearhead import hub, zoo
from clearhead.errors import InputError, TokenizerError, TokenizerNotBuilt
from clearhead.generate import Grammar, Options, PromptCache
from clearhead.models import Model
from clearhead.models.encoder_decoder import EncoderDecoderModel
from clearhead.models.sentence import Normalize, Pooling, SentenceHead
from clearhead.models.stack_model import TokenModel
from clearhead.pipeline.writing import Writing, Written
from clearhead.text import Tokenizer, has_tokenizer, load_tokenizer

log = logging.getLogger("clearhead")


def load(
    where: str | os.PathLike[str],
    task: str | None = None,
    dtype: torch.dtype | str | None = None,
    device: torch.device | str | None = None,
    revision: str | None = None,
    ignore_options: Iterable[str] = (),
    quantize: str | None = None,
) -> Pipeline:
    """Load a model and its tokenizer.

    where            a folder, a shipped name ("random-gpt2"), or a hub id ("openai-community/gpt2")
    task             which head; by default the checkpoint's own
    dtype            "float32", "bfloat16" …; by default as stored
    device           where to put it; by default the CPU
    revision         a branch, tag or commit of a hub repository
    ignore_options   configuration keys that Clearhead does not know and you know to be harmless
    quantize         "int8" or "int4": round the weights: faster on a CPU, less memory (nn/fast/quantized.py);
                     "auto": measure this machine and choose (hub/precision.py)
    """
    place, kind = hub.as_device(device), hub.as_dtype(dtype)
    hub.check_quantize(quantize, kind, place)
    name = os.fspath(where) if isinstance(where, str | os.PathLike) else ""
    card = zoo.SHIPPED.get(name) if not os.path.isdir(name) else None  # noqa: PTH112 (a name, not yet a path)
    if card is not None and card.make is not None:
        model, made = card.make(task)
        model = model.to(device=place, dtype=kind) if quantize is None else hub.apply_precision(model, quantize)
        return Pipeline(model, made, name=name)
    root = folder_of(where, revision)
    folder = hub.transformer_folder(root)
    if task is None and hub.is_sentence_folder(root):
        task = "features"
    model = hub.load_model(folder, task, dtype, device, ignore_options, quantize)
    missing = ""
    try:
        tokenizer = _tokenizer_in(folder)
    except TokenizerNotBuilt as error:  # the model takes token ids
        tokenizer, missing = None, str(error)
    sentence = hub.read_sentence(root, model.dtype, model.device) if model.task == "features" else None
    return Pipeline(model, tokenizer, name=name, sentence=sentence, no_tokenizer=missing)


def folder_of(where: str | os.PathLike[str], revision: str | None = None) -> Path:
    """The folder of a model: its own, a shipped one's, or where a hub's files were put."""
    name = os.fspath(where) if isinstance(where, str | os.PathLike) else ""
    if name in zoo.SHIPPED and not os.path.isdir(name):  # noqa: PTH112 (a name, not yet a path)
        folder = zoo.SHIPPED[name].folder
        if folder is None:
            raise InputError(f"{name} has no files: it is drawn anew each time. Begin with a family instead.")
        if revision is not None:
            raise InputError(f"{name} comes with the package; only a model from the hub has a revision.")
        return folder
    return hub.locate(where, revision, tuple(zoo.SHIPPED))


def _tokenizer_in(folder: os.PathLike[str]) -> Tokenizer | None:
    """The folder's tokenizer; None where there is none (a broken one is an error)."""
    return load_tokenizer(folder) if has_tokenizer(folder) else None


@dataclass(frozen=True)
class Guess:
    """One candidate for a masked word."""

    token: str
    token_id: int
    probability: float
    text: str  # the whole text with the candidate in place


class Pipeline:
    """`model` is the network, `tokenizer` its tokenizer; what a translator writes is read by `tokenizer.target`."""

    def __init__(
        self,
        model: Model,
        tokenizer: Tokenizer | None,
        name: str = "",
        sentence: hub.Sentence | None = None,
        no_tokenizer: str = "",
    ) -> None:
        """no_tokenizer: why there is none, where files of one were there."""
        self.model = model
        self._no_tokenizer = no_tokenizer
        self.sentence = sentence
        self._tokenizer = tokenizer
        self.name = name

    @property
    def tokenizer(self) -> Tokenizer:
        if self._tokenizer is None:
            raise TokenizerError(
                self._no_tokenizer
                or f"{self.name or 'This model'} came without tokenizer files, so it takes token ids only: "
                "use .model(input_ids=…), or copy tokenizer.json into its folder."
            )
        return self._tokenizer

    @overload
    def generate(self, text: str | None = None, **options: Any) -> str: ...
    @overload
    def generate(self, text: list[str], **options: Any) -> list[str]: ...
    def generate(self, text: str | list[str] | None = None, **options: Any) -> str | list[str]:
        """Continue a text (or answer it, for an encoder–decoder). Without a text, write from nothing.

        A list of texts gives a list; num_return_sequences above 1 too. Options: clearhead.generate.Options; for models
        that know languages src_lang and tgt_lang (by default those of the tokenizer); and one of these for an answer of
        a given form: choices=["yes", "no"], regex=r"\\d+", json_schema={…}. `write` tells more than the text.
        """
        texts = [written.text for written in self.watch(text, log_probs=False, **options).finish()]
        return texts[0] if len(texts) == 1 and not isinstance(text, list | tuple) else texts

    def write(self, text: str | list[str] | None = None, **options: Any) -> list[Written]:
        """Like `generate`, with everything that is known of each answer."""
        return self.watch(text, **options).finish()

    def stream(self, text: str | None = None, **options: Any) -> Iterator[str]:
        """The new text, piece by piece, as it is written. Closing it early is fine: what was shown stands."""
        if isinstance(text, list | tuple) or (options.get("num_return_sequences") or 1) != 1:
            raise InputError("A stream writes one text. For several, use generate.")
        if options.get("num_beams") is None:  # what the checkpoint prefers does not keep a stream from streaming
            options["num_beams"] = 1
        options["num_return_sequences"] = 1
        writing = self.watch(text, log_probs=False, **options)
        if writing.options.num_beams > 1:
            raise InputError("A beam search knows its answer only at the end, so it cannot stream. Use generate.")
        return writing.pieces()

    def watch(
        self,
        text: str | list[str] | None = None,
        *,
        past: PromptCache | None = None,
        log_probs: bool = True,
        **options: Any,
    ) -> Writing:
        """A call of `generate` that has not begun: its `pieces` as they come, or its `answers` when it is `finish`ed.

        past        what earlier calls have read, to be used again where the text begins the same
        log_probs   whether the chance of every token is kept
        """
        for name in ("return_dict_in_generate", "output_scores", "output_logits"):
            if options.get(name):
                raise InputError(
                    f"{name} speaks of tensors: use .model.generate, or .write for tokens and their chances."
                )
        given = {name: value for name, value in _with_grammar(options).items() if value is not None}
        reader, given = self.in_languages(given)
        prompts, ids, mask = self.encode_prompts(text, reader)
        target = self.tokenizer.target
        if "grammar" in given and not Options.from_keywords(given, self.model.generation).eos_ids(self.model.config):
            given.setdefault("eos_token_id", target.eos_token_id)  # an answer of a given form must be able to end
        return Writing(self.model, target, prompts, ids, mask, given, past=past, log_probs=log_probs)

    def fill(self, text: str, top_k: int = 5) -> list[list[Guess]]:
        """The likeliest words for each mask in the text, best first."""
        head = self.model.language_head
        if head is None or head.shift or self.model.task == "permutation-lm":  # which guesses in a stream of its own
            raise InputError(
                f"{self.name or 'This model'} is loaded for {self.model.task}; only a masked language model fills. "
                "Choose a checkpoint that was trained as one."
            )
        mask_token, mask_id = self.tokenizer.mask_token, self.tokenizer.mask_token_id
        if mask_token is None:
            raise TokenizerError("The tokenizer has no mask token.")
        if mask_token not in _checked(text):
            raise InputError(f"There is no gap in the text. Write {mask_token} where a word is hidden.")
        if top_k < 1:
            raise InputError(f"top_k is {top_k}; ask for at least one guess.")
        encoded = self.tokenizer(text, return_tensors="pt").to(self.model.device)
        ids = encoded["input_ids"][0]
        with torch.no_grad():
            logits = self.model(**encoded).logits[0].float()
        filled = []
        for position in (ids == mask_id).nonzero()[:, 0].tolist():
            best = logits[position].softmax(-1).topk(min(top_k, logits.shape[-1]))
            guesses = []
            for probability, token in zip(best.values.tolist(), best.indices.tolist(), strict=True):
                whole = ids.clone()
                whole[position] = token
                shown = self.tokenizer.decode(whole, skip_special_tokens=True)
                guesses.append(Guess(self.tokenizer.readable([token])[0], token, probability, shown))
            filled.append(guesses)
        return filled

    @torch.no_grad()
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
        if not isinstance(self.model, TokenModel):
            raise InputError("An encoder–decoder has no single stack to embed with. Load an encoder.")
        rows = [_checked(text) for text in ([texts] if isinstance(texts, str) else texts)]
        if not rows:
            raise InputError("The list of texts is empty.")
        known = self.sentence or hub.Sentence(SentenceHead(Pooling()))
        steps = [step for step in known.head.steps if normalize is None or not isinstance(step, Normalize)]
        steps += [Normalize()] if normalize else []
        head = SentenceHead(known.head.pooling if pooling is None else Pooling((pooling,)), steps)
        prompt = known.default_prompt_name if prompt is None else prompt
        rows = [known.prompts.get(prompt, prompt) + row if prompt else row for row in rows]
        if known.do_lower_case:
            rows = [row.lower() for row in rows]
        embed = self.model.stack.token_embedder
        limit = min(v for v in (known.max_seq_length, self.tokenizer.model_max_length, embed.max_length) if v)
        padded = self.tokenizer.pad_token is not None
        if not padded:
            batch_size = 1  # without a padding token, one text at a time
        vectors: dict[int, Tensor] = {}
        cut = 0
        order = sorted(range(len(rows)), key=lambda n: len(rows[n]))  # texts of a length share a batch
        for start in range(0, len(rows), batch_size):
            chosen = order[start : start + batch_size]
            batch = self.tokenizer(
                [rows[n] for n in chosen], padding=padded, truncation=True, max_length=limit, return_tensors="pt",
                return_attention_mask=True, return_token_type_ids=embed.segments is not None,
            ).to(self.model.device)  # fmt: skip
            full = [n for n, mask in zip(chosen, batch["attention_mask"], strict=True) if int(mask.sum()) == limit]
            cut += sum(len(self.tokenizer.encode(rows[n])) > limit for n in full)
            vectors |= zip(chosen, head(self.model.stack(**batch), batch["attention_mask"]), strict=True)
        if cut:
            log.warning("%s of %s texts were cut to the %s tokens that the model can read.", cut, len(rows), limit)
        out = torch.stack([vectors[n] for n in range(len(rows))])
        return out[0] if isinstance(texts, str) else out

    def save(self, folder: str | os.PathLike[str], overwrite: bool = False) -> None:
        """Write config.json, model.safetensors and the tokenizer's files: whole, or not at all."""
        hub.save_model(self.model, folder, self._tokenizer, sentence=self.sentence, overwrite=overwrite)

    def in_languages(self, options: dict[str, Any]) -> tuple[Tokenizer | None, dict[str, Any]]:
        """The tokenizer for the language asked for, and options that make the model write the other one."""
        tokenizer = self._tokenizer
        if tokenizer is None or tokenizer.languages is None:
            if options.get("src_lang") or options.get("tgt_lang"):
                raise InputError(
                    f"{self.name or 'This model'} knows no languages by name: leave src_lang and tgt_lang out."
                )
            return tokenizer, {name: v for name, v in options.items() if name not in ("src_lang", "tgt_lang")}
        options = dict(options)
        source, target = options.pop("src_lang", None), options.pop("tgt_lang", None) or tokenizer.tgt_lang
        if target is not None:
            first = tokenizer.convert_tokens_to_ids(tokenizer.languages.token(target))
            options.setdefault(
                "decoder_start_token_id" if tokenizer.languages.starts_decoder else "forced_bos_token_id", first
            )
        return tokenizer if source is None else tokenizer.with_src_lang(source), options

    def encode_prompts(
        self, text: str | list[str] | None, reader: Tokenizer | None = None
    ) -> tuple[list[str], Tensor, Tensor]:
        """The texts, and their ids padded on the left."""
        if text is None:
            if isinstance(self.model, EncoderDecoderModel):
                raise InputError("There is no text to read.")
            start = self.model.config.bos_token_id
            if start is None or start >= self.model.config.vocab_size:
                start = self._tokenizer.bos_token_id if self._tokenizer is not None else None
            if start is None:
                raise InputError("This model has no token to begin with, so it needs a prompt.")
            rows, prompts = [[start]], [""]
        else:
            prompts = list(text) if isinstance(text, list | tuple) else [text]
            if not prompts:
                raise InputError("The list of texts is empty.")
            rows = [self._prompt_ids(_checked(prompt), reader) for prompt in prompts]
        longest = max(map(len, rows))
        pad = self.model.config.pad_token_id or 0
        ids = torch.tensor([[pad] * (longest - len(row)) + row for row in rows])
        mask = torch.tensor([[0] * (longest - len(row)) + [1] * len(row) for row in rows])
        return prompts, ids.to(self.model.device), mask.to(self.model.device)

    def _prompt_ids(self, text: str, reader: Tokenizer | None = None) -> list[int]:
        if isinstance(self.model, EncoderDecoderModel):
            return (reader or self.tokenizer).encode(text)
        ids = self.tokenizer.encode(text)
        closing = {self.tokenizer.eos_token_id, self.tokenizer.sep_token_id} - {None}
        return ids[:-1] if len(ids) > 1 and ids[-1] in closing else ids  # a closed text would not be continued

    def __repr__(self) -> str:
        size = f"{self.model.num_parameters():,} parameters"
        kind = self.model.quantized or self.model.dtype
        return f"<{self.name or 'model'}: {self.model.family.title} for {self.model.task}, {size}, {kind}>"


def _with_grammar(options: dict[str, Any]) -> dict[str, Any]:
    """The short ways to say what form the answer has, made into a grammar."""
    ways: dict[str, Any] = {"choices": Grammar.choices, "regex": Grammar.regex, "json_schema": Grammar.json}
    asked = [name for name in (*ways, "grammar") if options.get(name) is not None]
    if len(asked) > 1:
        raise InputError(f"Give one form for the answer: {asked[0]} or {asked[1]}, not both.")
    rest = {name: value for name, value in options.items() if name not in ways}
    return rest | {"grammar": ways[asked[0]](options[asked[0]])} if asked and asked[0] in ways else rest


def _checked(text: Any) -> str:
    if not isinstance(text, str):
        raise InputError(f"The text must be a string, not {type(text).__name__}.")
    if not text.strip():
        raise InputError("The text is empty. Give at least one word (or leave it out to write from nothing).")
    return text
