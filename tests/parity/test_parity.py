"""Every check of fidelity, over every family, task and several random configurations."""

from __future__ import annotations

import functools
import inspect
import random
import tempfile
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
import transformers
from safetensors.torch import load_file
from torch import Tensor

from clearhead import hub
from clearhead.models.encoder_decoder import EncoderDecoderModel
from clearhead.models.heads import Summary
from clearhead.models.stack_model import TokenModel
from clearhead.nn import trace

from .families import FAMILIES
from .family_transformer import TorchTransformer

SEEDS = (0, 1, 2, 3)
CASES = [(name, task, seed) for name, ref in FAMILIES.items() for task in ref.classes for seed in SEEDS]
GENERATING = [case for case in CASES if case[1] in FAMILIES[case[0]].generates]
CACHING = [case for case in CASES if case[1] in ("causal-lm", "seq2seq-lm") and FAMILIES[case[0]].caches]
SHOWING_INSIDE = [case for case in CASES if FAMILIES[case[0]].shows_inside]

ROOM = tempfile.TemporaryDirectory()  # for the checkpoints of all cases; gone when the tests are done

every_case = pytest.mark.parametrize(("name", "task", "seed"), CASES)


@functools.lru_cache(maxsize=64)
def case(name: str, task: str, seed: int) -> SimpleNamespace:
    """The reference model, the same checkpoint opened here, and its config as the reference keeps it."""
    rng = random.Random(f"{name} {task} {seed}")
    torch.manual_seed(seed)
    ref = FAMILIES[name]
    if task in ref.faults:
        pytest.skip(f"transformers {transformers.__version__}: {ref.faults[task]}")
    config = ref.config(rng, task)
    theirs = ref.build(config, task)
    folder = Path(tempfile.mkdtemp(dir=ROOM.name)) / "model"
    ref.save(theirs, folder)
    ours = hub.load_model(folder)
    assert ours.task == task
    return SimpleNamespace(ref=ref, config=config, theirs=theirs, ours=ours, folder=folder, rng=rng, task=task)


def tokens(model, batch: int, time: int, source: bool = False) -> Tensor:
    size = model.config.vocab_size
    if isinstance(model, EncoderDecoderModel):
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
    if isinstance(c.ours, TokenModel) and c.ours.stack.embed.segments is not None:
        out["token_type_ids"] = torch.randint(0, c.ours.stack.embed.segments.num_embeddings, ids.shape)
    if isinstance(c.ours, TokenModel) and c.ours.stack.embed.languages is not None:
        out["langs"] = torch.randint(0, c.ours.stack.embed.languages.num_embeddings, ids.shape)
    if isinstance(c.ours, EncoderDecoderModel):
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
        theirs, ours = c.theirs(**given), c.ours(**given)
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


@every_case
@pytest.mark.parametrize("pad", [None, "right"])
def test_outputs(name, task, seed, pad):
    c = case(name, task, seed)
    compare_outputs(c, inputs(c, pad=pad))


@every_case
def test_left_padding(name, task, seed):
    """With positions given where the reference takes them, as left padding needs."""
    c = case(name, task, seed)
    given = inputs(c, pad="left")
    if any(isinstance(module, Summary) and module.token == "first" for module in c.ours.modules()):
        given["attention_mask"][..., 0] = 1  # this head looks at the first position, which must be a real token
        given["input_ids"][..., 0] = 3
    elif c.ref.takes_positions:
        given["position_ids"] = (given["attention_mask"].cumsum(-1) - 1).clamp(min=0)
    compare_outputs(c, given)


@pytest.mark.parametrize(("name", "task", "seed"), SHOWING_INSIDE)
def test_hidden_states_and_attention_weights(name, task, seed):
    c = case(name, task, seed)
    given = inputs(c, pad="right")
    with torch.no_grad():
        theirs = c.theirs(**given, output_hidden_states=True, output_attentions=True)
        ours = c.ours(**given, output_hidden_states=True, output_attentions=True)
        flat = {k: v.flatten(0, 1) if c.task == "multiple-choice" else v for k, v in given.items()}
    source = flat["attention_mask"].bool()
    if isinstance(c.ours, EncoderDecoderModel):
        target = torch.ones(ours.hidden_states[0].shape[:2], dtype=torch.bool)
        if c.task in ("sequence-classification", "question-answering"):
            target = source
        compare_layers(ours.encoder_hidden_states, theirs.encoder_hidden_states, source)
        compare_weights(ours.encoder_attentions, theirs.encoder_attentions, source)
        compare_layers(ours.hidden_states, theirs.decoder_hidden_states, target)
        compare_weights(ours.attentions, theirs.decoder_attentions, target)
        compare_weights(ours.cross_attentions, theirs.cross_attentions, target)
    else:
        assert len(ours.hidden_states) == len(c.ours.stack.layers) + 1
        compare_layers(ours.hidden_states, theirs.hidden_states, source)
        compare_weights(ours.attentions, theirs.attentions, source)
        if "encoder_hidden_states" in given:
            compare_weights(ours.cross_attentions, theirs.cross_attentions, source)


def compare_layers(ours, theirs, real: Tensor) -> None:
    for a, b in zip(ours, theirs, strict=True):
        close(a, b, real)


def compare_weights(ours, theirs, real: Tensor) -> None:
    """Attention weights (batch, heads, query, key), and that the rows of real queries sum to one."""
    for a, b in zip(ours, theirs, strict=True):
        rows, want = a.transpose(1, 2)[real], b.transpose(1, 2)[real]
        close(rows, want)
        torch.testing.assert_close(rows.sum(-1), torch.ones(rows.shape[:-1]))


@every_case
def test_loss_and_gradients(name, task, seed):
    c = case(name, task, seed)
    given = inputs(c, pad="right")
    wanted = labels(c, given)
    if not wanted:
        pytest.skip("features have no loss")
    c.theirs.zero_grad()
    c.ours.zero_grad()
    theirs, ours = c.theirs(**given, **wanted), c.ours(**given, **wanted)
    close(ours.loss, theirs.loss)
    theirs.loss.backward()
    ours.loss.backward()
    compare_gradients(c)


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
    import copy

    twin = copy.deepcopy(model)
    with torch.no_grad():
        for p, q in zip(twin.parameters(), model.parameters(), strict=True):
            p.copy_(torch.zeros_like(p) if q.grad is None else q.grad)
    return twin


@every_case
def test_padded_batch_equals_one_by_one(name, task, seed):
    c = case(name, task, seed)
    given = inputs(c, pad="right")
    if task == "multiple-choice":
        pytest.skip("its rows are compared with each other")
    if any(isinstance(module, Summary) and module.token in ("final", "mean") for module in c.ours.modules()):
        pytest.skip("this head reads the last position, or all of them, padding or not")
    with torch.no_grad():
        together = c.ours(**given)
        for row in range(len(given["input_ids"])):
            length = int(given["attention_mask"][row].sum())
            alone = {
                k: v[row : row + 1, :length]
                if k in ("input_ids", "attention_mask", "token_type_ids", "langs")
                else v[row : row + 1]
                for k, v in given.items()
            }
            single = c.ours(**alone)
            for key in RESULTS & set(single.keys()):
                whole = together[key][row : row + 1]
                per_source = key != "pooler_output" and whole.ndim > 1 and whole.shape[1] == given["input_ids"].shape[1]
                close(single[key], whole[:, :length] if per_source and task != "seq2seq-lm" else whole)


@every_case
def test_explicit_path_equals_fast_path(name, task, seed):
    c = case(name, task, seed)
    given = inputs(c, pad="right")
    names = "**.attention.weights"
    with torch.no_grad():
        fast = c.ours(**given)
        with trace(c.ours, names) as seen:
            explicit = c.ours(**given)
    assert seen
    real = given["attention_mask"].bool()
    for key in RESULTS & set(fast.keys()):
        per_token = fast[key].shape[:2] == real.shape and task not in ("multiple-choice", "seq2seq-lm")
        close(explicit[key], fast[key], real if per_token and key != "pooler_output" else None)


@pytest.mark.parametrize(("name", "task", "seed"), CACHING)
def test_cached_equals_uncached(name, task, seed):
    c = case(name, task, seed)
    given = inputs(c, pad=None)
    key = "decoder_input_ids" if task == "seq2seq-lm" else "input_ids"
    ids = given.pop(key)
    if key == "input_ids":
        given.pop("attention_mask")
    types = given.pop("token_type_ids", None)
    with torch.no_grad():
        whole = c.ours(**{key: ids}, **given, **({} if types is None else {"token_type_ids": types})).logits
        cut = ids.shape[1] // 2
        pieces, cache, at = [], None, 0
        for size in (cut, 1, 1, ids.shape[1] - cut - 2):
            extra = {} if types is None else {"token_type_ids": types[:, at : at + size]}
            out = c.ours(**{key: ids[:, at : at + size]}, **given, **extra, past_key_values=cache, use_cache=True)
            pieces.append(out.logits)
            cache, at = out.past_key_values, at + size
    close(torch.cat(pieces, 1), whole)


@every_case
def test_bf16_is_sane(name, task, seed):
    c = case(name, task, seed)
    given = inputs(c, pad="right")
    half = hub.load_model(c.folder, dtype="bfloat16")
    assert half.dtype == torch.bfloat16
    as_half = {k: v.bfloat16() if v.is_floating_point() else v for k, v in given.items()}
    with torch.no_grad():
        full, rough = c.ours(**given), half(**as_half)
    for key in RESULTS & set(full.keys()):
        assert rough[key].isfinite().all()
        drift = (rough[key].float() - full[key]).norm() / full[key].norm()
        assert drift < 0.15, (key, drift)


@every_case
def test_saved_here_opens_there_and_here(name, task, seed, tmp_path):
    c = case(name, task, seed)
    given = inputs(c, pad="right")
    hub.save_model(c.ours, tmp_path / "saved")
    there = c.ref.open(tmp_path / "saved", task)
    again = hub.load_model(tmp_path / "saved")
    assert again.task == task
    with torch.no_grad():
        theirs, reopened = c.theirs(**given), there(**given)
        ours, ours_again = c.ours(**given), again(**given)
    for key in (RESULTS | {"prediction_logits", "seq_relationship_logits", "sop_logits"}) & set(theirs.keys()):
        if theirs[key] is not None:
            # the same numbers; in memory aligned differently, a sum may round differently
            close(reopened[key], theirs[key], tolerance=1e-6)
    for key in RESULTS & set(ours.keys()):
        close(ours_again[key], ours[key], tolerance=1e-6)
    for (n, a), (m, b) in zip(c.ours.named_parameters(), again.named_parameters(), strict=True):
        assert n == m
        assert torch.equal(a, b)
    assert again.config == c.ours.config
    # The names are the reference's, prefix and all. (It may store the other one of two tied tensors.)
    assert stored_names(tmp_path / "saved") <= stored_names(c.folder) | set(c.theirs.state_dict())


def stored_names(folder: Path) -> set[str]:
    return {name for file in folder.glob("*.safetensors") for name in load_file(file)}


PROMPT = ("input_ids", "attention_mask")


def until_end(c: SimpleNamespace, row: list[int], start: int) -> list[int]:
    """The new tokens up to the end token, which is where padding conventions begin to differ."""
    new, end = row[start:], c.ours.config.eos_token_id
    return new[: new.index(end) + 1] if end in new else new


@pytest.mark.parametrize(("name", "task", "seed"), GENERATING)
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"repetition_penalty": 1.3, "no_repeat_ngram_size": 2},
        {"min_new_tokens": 6},
        {"num_beams": 3},
        {"num_beams": 4, "num_return_sequences": 3, "length_penalty": 0.6},
        {"num_beams": 3, "early_stopping": True, "length_penalty": 2.0},
        {"num_beams": 2, "early_stopping": "never", "no_repeat_ngram_size": 2},
    ],
    ids=str,
)
def test_generated_tokens(name, task, seed, options):
    c = case(name, task, seed)
    pad = "right" if isinstance(c.ours, EncoderDecoderModel) else "left"  # where the reference expects it
    if "no_repeat_ngram_size" in options and isinstance(c.ours, TokenModel):
        pad = None  # the reference counts padding as text that must not be repeated
    given = {key: value for key, value in inputs(c, time=6, pad=pad).items() if key in PROMPT}
    start = 1 if isinstance(c.ours, EncoderDecoderModel) else 6
    more = {}
    if isinstance(c.ours, TokenModel) and (first := c.ours.stack.embed.first_position):
        # The reference's `generate` forgets the offset that its own forward pass adds: give it the right positions.
        more["position_ids"] = (given["attention_mask"].cumsum(-1) - 1).clamp(min=0) + first
    theirs = c.theirs.generate(**given, **more, max_new_tokens=8, do_sample=False, **options)
    ours = c.ours.generate(**given, max_new_tokens=8, **options)
    assert len(ours) == len(theirs)
    for a, b in zip(ours.tolist(), theirs.tolist(), strict=True):
        assert until_end(c, a, start) == until_end(c, b, start)


@pytest.mark.parametrize(("name", "task", "seed"), GENERATING)
def test_right_padded_prompts_continue_like_single_ones(name, task, seed):
    c = case(name, task, seed)
    if isinstance(c.ours, EncoderDecoderModel):
        pytest.skip("an encoder–decoder's prompt is its start token")
    given = inputs(c, time=7, pad="right")
    together = c.ours.generate(given["input_ids"], attention_mask=given["attention_mask"], max_new_tokens=6)
    for row, mask in enumerate(given["attention_mask"]):
        length = int(mask.sum())
        alone = c.ours.generate(given["input_ids"][row : row + 1, :length], max_new_tokens=6)
        assert until_end(c, together[row].tolist(), 7) == until_end(c, alone[0].tolist(), length)


@pytest.mark.parametrize(("name", "task", "seed"), [c for c in CASES if c[0] == "transformer"])
@pytest.mark.parametrize("beams", [1, 3])
def test_encoder_decoder_generation(name, task, seed, beams):
    """Greedy equals an argmax loop without a cache; every beam is at least as likely as the greedy answer."""
    c = case(name, task, seed)
    given = inputs(c, pad="right")
    source = {"input_ids": given["input_ids"], "attention_mask": given["attention_mask"]}
    written = torch.ones(len(given["input_ids"]), 1, dtype=torch.long)
    ours = c.ours.generate(**source, max_new_tokens=7, num_beams=beams, eos_token_id=[])
    if beams == 1:
        with torch.no_grad():
            for _ in range(7):
                step = c.theirs(**source, decoder_input_ids=written).logits[:, -1].argmax(-1)
                written = torch.cat([written, step[:, None]], 1)
        assert torch.equal(ours, written)
    else:
        greedy = c.ours.generate(**source, max_new_tokens=7, eos_token_id=[])

        def log_likelihood(ids: Tensor) -> Tensor:
            with torch.no_grad():
                logits = c.theirs(**source, decoder_input_ids=ids[:, :-1]).logits.log_softmax(-1)
            return logits.gather(-1, ids[:, 1:, None]).sum((1, 2))

        assert (log_likelihood(ours) >= log_likelihood(greedy) - 1e-4).all()
