"""The next word, for models that carry a state: streams of text, each row going on where its last window ended."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from clearhead.errors import InputError
from clearhead.models import Model
from clearhead.models.awd_lstm import AWDLanguageHead
from clearhead.models.recurrent import RecurrentModel
from clearhead.nn.state import TensorState
from clearhead.text import Tokenizer
from clearhead.train.data.types import Batch, Example
from clearhead.train.objectives.base import check_weights, term_sums
from clearhead.train.objectives.padding import padded
from clearhead.train.objectives.running_text import RunningText, check_length, special_id


class RecurrentLM(RunningText):
    """Truncated backpropagation through time: gradients end where a window begins, the states come from before it.

    ar       what the mean square of the last layer's states counts (activation regularisation)
    tar      what the mean square of their change from step to step counts (temporal activation regularisation)
    jitter   windows differ in length, about batch.length

    The two penalties are AWD-LSTM's; other recurrent models have none.
    """

    name = "recurrent-lm"
    task = "causal-lm"
    blocks = False
    streams = True
    special_tokens = {"eos_token": "<|endoftext|>"}

    def __init__(
        self, tokenizer: Tokenizer, length: int, *, ar: float = 2.0, tar: float = 1.0, jitter: bool = True
    ) -> None:
        super().__init__(tokenizer, length, closing=special_id(tokenizer, "eos_token", "to close a document"))
        check_length(length, 2)
        check_weights(loss=1.0, ar=ar, tar=tar)
        self.penalties, self.jitter = {"ar": ar, "tar": tar}, jitter
        self.penalised = False
        self.carried: dict[bool, CarriedStates] = {}  # by whether it was training that carried them

    @property
    def loss_weights(self) -> dict[str, float]:
        penalties = {name: weight for name, weight in self.penalties.items() if weight and self.penalised}
        return {"loss": 1.0} | penalties

    def collate(self, examples: Sequence[Example]) -> Batch:
        inputs = {name: padded([example[name] for example in examples], 0) for name in ("input_ids", "next_ids")}
        inputs["streams"] = torch.tensor([example["stream"] for example in examples])
        guessed = inputs["next_ids"].numel()
        batch = Batch(inputs, dict.fromkeys(self.loss_weights, guessed), guessed)
        batch.extra |= {"begins": bool(examples[0]["begins"]), "streams": examples[0]["streams"]}
        return batch

    def training_module(self, model: Model) -> nn.Module:
        if not isinstance(model, RecurrentModel) or not model.can_generate:
            raise InputError(
                f"{model.family.title} carries no state from one window to the next: recurrent-lm is for recurrent "
                "models that write (awd-lstm, rnn). Choose causal-lm."
            )
        self.penalised = isinstance(model.head, AWDLanguageHead)
        return model

    def losses(self, model: nn.Module, batch: Batch) -> dict[str, Tensor]:
        states = self.carried.setdefault(model.training, CarriedStates())
        rows = batch.inputs["streams"]
        state = TensorState() if batch.extra["begins"] else states.take(rows)
        out = model(batch.inputs["input_ids"], next_ids=batch.inputs["next_ids"], past_key_values=state)
        states.put(rows, state, batch.extra["streams"])
        if not model.training:
            return {"loss": out.loss}
        terms = {"loss": out.loss, "ar": out.activation_penalty, "tar": out.temporal_penalty}
        return {name: terms[name] for name in self.loss_weights}

    @torch.no_grad()
    def measure(self, model: nn.Module, batch: Batch) -> dict[str, float]:
        return term_sums(self.losses(model, batch), batch)

    def report(self, sums: Mapping[str, float]) -> dict[str, float]:
        """The loss in nats per token, and perplexity."""
        metrics = super().report(sums)
        return metrics | {"perplexity": math.inf if metrics["loss"] > 700 else math.exp(metrics["loss"])}

    def state_tensors(self) -> dict[str, Tensor]:
        return self.carried[True].tensors if True in self.carried else {}

    def own_rows(self) -> Tensor | None:
        return self.carried[True].own if True in self.carried else None

    def load_state(self, tensors: Mapping[str, Tensor]) -> None:
        if tensors:
            self.carried[True] = CarriedStates(dict(tensors))


class CarriedStates:
    """What every stream has been read to: the states of a recurrent model, stream by stream.

    tensors   by name, (directions, streams, width) each
    own       (streams,): which of them were read here, where several devices share a batch
    """

    def __init__(self, tensors: dict[str, Tensor] | None = None) -> None:
        self.tensors: dict[str, Tensor] = tensors or {}
        self.own: Tensor | None = None

    def take(self, rows: Tensor) -> TensorState:
        if not self.tensors:
            return TensorState()
        self.tensors = {name: tensor.to(rows.device) for name, tensor in self.tensors.items()}
        return TensorState([self.tensors[f"state_{n}"][:, rows].contiguous() for n in range(len(self.tensors))])

    def put(self, rows: Tensor, state: TensorState, streams: int) -> None:
        """streams: how many there are in all"""
        assert state.tensors is not None
        if self.own is None or len(self.own) != streams:
            self.own = torch.zeros(streams, dtype=torch.bool, device=rows.device)
        self.own[rows] = True
        for n, new in enumerate(state.tensors):
            kept = self.tensors.get(f"state_{n}")
            if kept is None or kept.shape[1] != streams or kept.dtype != new.dtype:
                kept = new.new_zeros(new.shape[0], streams, new.shape[2])
            kept[:, rows] = new.detach()
            self.tensors[f"state_{n}"] = kept
