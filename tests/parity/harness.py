"""What the checks of fidelity share: a case (the reference model and ours), its inputs, how two answers agree."""

from __future__ import annotations

import copy
import functools
import inspect
import random
import tempfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import transformers
from safetensors.torch import load_file
from torch import Tensor

from clearhead import hub

from .families import FAMILIES
from .family_transformer import TorchTransformer

SAVED = tempfile.TemporaryDirectory()  # for the checkpoints of all cases; gone when the tests are done


@functools.lru_cache(maxsize=4)  # the checks of one case run one after the other: see conftest.py
def case(name: str, task: str, seed: int) -> SimpleNamespace:
    """The reference model, the same checkpoint opened here, and its config as the reference keeps it."""
    ref = FAMILIES[name]
    if task in ref.faults:
        pytest.skip(f"transformers {transformers.__version__}: {ref.faults[task]}")
    with torch.random.fork_rng():  # a check draws the same inputs whether or not it is the first of its case
        torch.manual_seed(seed)
        config = ref.config(random.Random(f"{name} {task} {seed}"), task)
        theirs = ref.build(config, task)
    folder = Path(tempfile.mkdtemp(dir=SAVED.name)) / "model"
    ref.save(theirs, folder)
    ours = hub.load_model(folder)
    assert ours.task == task
    return SimpleNamespace(ref=ref, config=config, theirs=theirs, ours=ours, folder=folder, task=task)


def tokens(model, batch: int, time: int, source: bool = False) -> Tensor:
    size = model.config.vocab_size
    if model.is_encoder_decoder:
        size = (model.encoder if source else model.decoder).embed.tokens.num_embeddings
    return torch.randint(3, size, (batch, time))


def inputs(c: SimpleNamespace, batch: int = 3, time: int = 9, pad: str | None = "right") -> dict[str, Tensor]:
    """A padded batch with everything the model can take."""
    shape = (batch, 4) if c.task == "multiple-choice" else (batch,)
    ids = tokens(c.ours, int(torch.tensor(shape).prod()), time, source=True)
    mask = torch.ones_like(ids)
    for row in range(1, len(ids)):
        hidden = row % 3 + 1
        if pad == "right":
            mask[row, -hidden:] = 0
        elif pad == "left":
            mask[row, :hidden] = 0
    ids = ids.masked_fill(mask == 0, c.ours.config.pad_token_id or 0)
    out = {"input_ids": ids, "attention_mask": mask}
    if not c.ours.is_encoder_decoder and c.ours.stack.embed.segments is not None:
        out["token_type_ids"] = torch.randint(0, c.ours.stack.embed.segments.num_embeddings, ids.shape)
    if not c.ours.is_encoder_decoder and c.ours.stack.embed.languages is not None:
        out["langs"] = torch.randint(0, c.ours.stack.embed.languages.num_embeddings, ids.shape)
    if c.ours.is_encoder_decoder:
        if c.task in ("sequence-classification", "question-answering"):
            last = [int(row.nonzero()[-1]) for row in mask]  # these heads read the end token of the source
            ids[torch.arange(len(ids)), last] = c.ours.config.eos_token_id
        else:
            out["decoder_input_ids"] = tokens(c.ours, batch, 6)
    elif c.ours.stack.layers[0].cross_attention is not None:
        out["encoder_hidden_states"] = torch.randn(batch, 5, c.ours.config.hidden_size)
        out["encoder_attention_mask"] = torch.tensor([[1, 1, 1, 1, 1]] + [[1, 1, 1, 0, 0]] * (batch - 1))
    if c.task == "multiple-choice":
        out = {key: value.unflatten(0, shape) for key, value in out.items()}
    return out


def answers(c: SimpleNamespace) -> tuple[dict[str, Tensor], Any, Any]:
    """A batch padded on the right, what the reference says of it, and what ours says: computed once for all checks."""
    if not hasattr(c, "answers"):
        torch.default_generator.manual_seed(0)
        given = inputs(c, pad="right")
        with torch.no_grad():
            c.answers = given, c.theirs(**given), c.ours(**given)
    return c.answers


def labels(c: SimpleNamespace, given: dict[str, Tensor]) -> dict[str, Tensor]:
    ids, batch = given["input_ids"], len(given["input_ids"])
    count = c.ours.config.num_labels
    if c.task in ("causal-lm", "masked-lm", "permutation-lm", "pretraining"):
        wanted = ids.masked_fill(given["attention_mask"] == 0, -100)
        if c.task == "pretraining":
            order = "sentence_order_label" in inspect.signature(c.theirs.forward).parameters
            follows = "sentence_order_label" if order else "next_sentence_label"
            return {"labels": wanted, follows: torch.randint(0, 2, (batch,))}
        return {"labels": wanted}
    if c.task == "seq2seq-lm":
        return {"labels": tokens(c.ours, *given["decoder_input_ids"].shape)}
    if c.task == "replaced-token":
        return {"labels": torch.randint(0, 2, ids.shape)}
    if c.task == "token-classification":
        return {"labels": torch.randint(0, count, ids.shape).masked_fill(given["attention_mask"] == 0, -100)}
    if c.task == "sequence-classification":
        return {"labels": torch.randn(batch) if count == 1 else torch.randint(0, count, (batch,))}
    if c.task == "next-sentence":
        return {"labels": torch.randint(0, 2, (batch,))}
    if c.task == "multiple-choice":
        return {"labels": torch.randint(0, ids.shape[1], (batch,))}
    if c.task == "question-answering":
        return {
            "start_positions": torch.tensor([0, 3, 50][:batch]),
            "end_positions": torch.tensor([2, 4, 60][:batch]),
        }
    return {}


def close(a: Tensor, b: Tensor, real: Tensor | None = None, tolerance: float = 1e-5) -> None:
    """Equal to `tolerance` of the largest value; `real` (batch, time) leaves padded positions out."""
    if real is not None:
        a, b = a[real], b[real]
    assert a.shape == b.shape
    scale = max(1.0, b.abs().max().item())
    torch.testing.assert_close(a.float(), b.float(), rtol=tolerance, atol=tolerance * scale)


RESULTS = {"logits", "start_logits", "end_logits", "last_hidden_state", "pooler_output"}


def compare_outputs(c: SimpleNamespace, given: dict[str, Tensor], tolerance: float = 1e-5) -> None:
    with torch.no_grad():
        compare_answers(c, given, c.theirs(**given), c.ours(**given), tolerance)


def compare_answers(c: SimpleNamespace, given: dict[str, Tensor], theirs: Any, ours: Any, tolerance=1e-5) -> None:
    real = given["attention_mask"].bool()
    found = 0
    for key in RESULTS & set(theirs.keys()):
        if theirs[key] is None:
            continue
        per_token = theirs[key].shape[:2] == real.shape and key != "pooler_output" and c.task != "multiple-choice"
        close(ours[key], theirs[key], real if per_token and c.task != "seq2seq-lm" else None, tolerance)
        found += 1
    if c.task == "pretraining":
        close(ours.logits, theirs.prediction_logits, real, tolerance)
        name = "sop_logits" if "sop_logits" in theirs else "seq_relationship_logits"
        close(getattr(ours, name), theirs[name], None, tolerance)
        found += 1
    assert found


def compare_layers(ours, theirs, real: Tensor) -> None:
    for a, b in zip(ours, theirs, strict=True):
        close(a, b, real)


def compare_weights(ours, theirs, real: Tensor) -> None:
    """Attention weights (batch, heads, query, key), and that the rows of real queries sum to one."""
    for a, b in zip(ours, theirs, strict=True):
        rows, want = a.transpose(1, 2)[real], b.transpose(1, 2)[real]
        close(rows, want)
        torch.testing.assert_close(rows.sum(-1), torch.ones(rows.shape[:-1]))


def compare_gradients(c: SimpleNamespace) -> None:
    """Our gradients, taken through the checkpoint map, are the reference's."""
    if isinstance(c.theirs, TorchTransformer):
        theirs = c.ref.names(_grads_as_weights(c.theirs))
    else:
        theirs = {n: p.grad for n, p in c.theirs.named_parameters() if p.grad is not None}
    map_ = c.ours.family.checkpoint_map(c.ours.config, c.task)
    compared = 0
    for entry in map_.entries:
        params = [c.ours.get_parameter(n) for n in entry.ours]
        if any(p.grad is None for p in params):
            continue
        if entry.tied_to and params[0] is c.ours.get_parameter(entry.tied_to):
            continue
        for published, grad in zip(entry.theirs, entry.to_theirs([p.grad for p in params]), strict=True):
            name = map_.published_name(published, entry, with_prefix=c.task != "features")
            if name in theirs:
                close(grad, theirs[name], tolerance=2e-5)
                compared += 1
    assert compared >= len(theirs) * 0.9, (compared, len(theirs))


def _grads_as_weights(model):
    twin = copy.deepcopy(model)
    with torch.no_grad():
        for p, q in zip(twin.parameters(), model.parameters(), strict=True):
            p.copy_(torch.zeros_like(p) if q.grad is None else q.grad)
    return twin


def stored_names(folder: Path) -> set[str]:
    return {name for file in folder.glob("*.safetensors") for name in load_file(file)}


def until_end(c: SimpleNamespace, row: list[int], start: int) -> list[int]:
    """The new tokens up to the end token, which is where padding conventions begin to differ."""
    new, end = row[start:], c.ours.config.eos_token_id
    return new[: new.index(end) + 1] if end in new else new
