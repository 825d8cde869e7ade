"""A frozen encoder: a text becomes one vector, the mean of its tokens' last hidden states."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Sequence
from functools import cached_property

import numpy as np
import torch

from clearhead import hub
from clearhead.errors import InputError
from clearhead.generate.session import check_numbers
from clearhead.hub.adapter import is_adapter
from clearhead.hub.fingerprint import fingerprint
from clearhead.messages import say
from clearhead.models.sentence import Pooling, SentenceHead
from clearhead.nn.fast import cpu_kernels
from clearhead.text import Tokenizer, load_tokenizer
from clearhead.zoo.folder import folder_of

log = logging.getLogger("clearhead")
DEFAULT = "bert-mini"
CPU_TOKENS, GPU_TOKENS = 1024, 32 * 1024  # in a batch; on a CPU more would leave its caches


class Encoder:
    """Gives what `ch.load(name).embed(texts)` gives: a Sentence-BERT folder pools as it says, others take the mean.

    name         a folder (with its whole path), a shipped name or a hub id
    max_length   how many tokens of a text it reads, those that mark its ends included
    """

    def __init__(self, name: str | os.PathLike[str] = DEFAULT, device: str | torch.device | None = None) -> None:
        root = folder_of(name)
        self.name = str(hub.user_path(name).resolve()) if hub.user_path(name).is_dir() else os.fspath(name)
        if is_adapter(root):
            raise InputError(say("retrieval.adapter", name=self.name))
        folder = hub.transformer_folder(root)
        family = hub.read_config(folder)[0]
        if family.modality != "text" or "features" not in family.architectures:
            raise InputError(say("retrieval.no_encoder", name=self.name, family=family.title))
        self.model = hub.load_model(folder, "features", device=device)
        if self.model.is_encoder_decoder:
            raise InputError(say("retrieval.no_encoder", name=self.name, family=family.title))
        self.tokenizer: Tokenizer = load_tokenizer(folder)
        self._sentence = hub.read_sentence(root, self.model.dtype, self.model.device)
        self._head = SentenceHead(Pooling()) if self._sentence is None else self._sentence.head
        limits = (
            None if self._sentence is None else self._sentence.max_seq_length,
            self.tokenizer.model_max_length,
            self.model.output_stack.token_embedder.max_length,
        )
        self.max_length = min(limit for limit in limits if limit)

    @cached_property
    def fingerprint(self) -> str:
        """Changes with anything that the vectors depend on."""
        return fingerprint(self.model, self.tokenizer, self._sentence)

    @cached_property
    def width(self) -> int:
        return self.embed(["a"]).shape[1]

    def knows(self, text: str) -> bool:
        """Whether there is a word in it that the tokenizer has; a script that it was not made for is all unknown."""
        ids = self.tokenizer(text, add_special_tokens=False)["input_ids"]
        return any(token != self.tokenizer.unk_token_id for token in ids)

    def embed(self, texts: Sequence[str], advance: Callable[[int], None] | None = None) -> np.ndarray:
        """(texts, width), float32. Texts of one length run together, so that nothing is padded.

        advance   hears how many texts are done, after every batch
        """
        prepared = self._prepared(texts)
        rows = self.tokenizer(prepared)
        lengths: dict[int, list[int]] = {}
        for n, ids in enumerate(rows["input_ids"]):
            lengths.setdefault(len(ids), []).append(n)
        too_long = sum(len(numbers) for length, numbers in lengths.items() if length > self.max_length)
        if too_long:
            log.warning("%s of %s texts were cut to the %s tokens that %s reads.",
                        too_long, len(texts), self.max_length, self.name)  # fmt: skip
            rows = self.tokenizer(prepared, truncation=True, max_length=self.max_length)
        on_cpu = self.model.device.type == "cpu"
        if on_cpu and len(texts) >= 32:
            cpu_kernels.load()  # with them, products of many rows are quicker too
        vectors: list[np.ndarray] = [np.empty(0)] * len(texts)
        for length, numbers in lengths.items():
            size = max(1, (CPU_TOKENS if on_cpu else GPU_TOKENS) // min(length, self.max_length))
            for first in range(0, len(numbers), size):
                chosen = numbers[first : first + size]
                for n, vector in zip(chosen, self._run([rows["input_ids"][n] for n in chosen]), strict=True):
                    vectors[n] = vector
                if advance is not None:
                    advance(len(chosen))
        return np.stack(vectors)

    def _prepared(self, texts: Sequence[str]) -> list[str]:
        """With the folder's own prompt before each, and in small letters, where it says so."""
        if self._sentence is None:
            return list(texts)
        name = self._sentence.default_prompt_name
        prompt = self._sentence.prompts.get(name, name) if name else ""
        return [(prompt + text).lower() if self._sentence.do_lower_case else prompt + text for text in texts]

    @torch.no_grad()
    def _run(self, ids: list[list[int]]) -> np.ndarray:
        """(rows, length) ids -> (rows, width)"""
        batch = torch.tensor(ids, device=self.model.device)
        found = self._head(self.model.output_stack(input_ids=batch), torch.ones_like(batch))
        check_numbers(found, self.model)
        vectors: np.ndarray = found.float().cpu().numpy()
        return vectors
