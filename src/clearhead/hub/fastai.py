"""fastai's weight files: one .pth with the tensors of an AWD-LSTM. Its sizes are read off them; nothing in it is run.

It may be a state dict, as `learn.save(…, with_opt=False)` writes it; one beside the optimiser's state, which is passed
over (`learn.save`); or an encoder alone (`learn.save_encoder`). Older files have each recurrent matrix twice, as
`module.weight_hh_l0` and `weight_hh_l0_raw`: the raw one counts.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from clearhead import models
from clearhead.errors import CheckpointError, InputError
from clearhead.files import atomic_paths
from clearhead.hub.assign import assign_weights, published_tensors
from clearhead.hub.load import as_device, as_dtype
from clearhead.hub.precision import apply as apply_precision
from clearhead.hub.precision import check_quantize
from clearhead.hub.weights import Weights, read_pickled, table_of_tensors
from clearhead.models import Model
from clearhead.models.awd_lstm import CLASSIFIER_DROPOUT, PREFIXES
from clearhead.text.word_rules import BEGIN, FILLER, PADDING

FASTAI_SUFFIXES = (".pth", ".pt", ".pkl")
WORDS = ".vocab.json"
# What fastai's optimiser states are made of, beside tensors and plain lists. They are passed over.
_NOT_READ = (
    "fastcore.foundation.L",
    "numpy.dtype",
    *(f"{module}.multiarray.scalar" for module in ("numpy.core", "numpy._core")),
    *(f"numpy.dtypes.{kind}DType" for kind in ("Float16", "Float32", "Float64", "Int32", "Int64", "Bool")),
)
# beside the `_raw` that counts: what dropout had left of it when the file was written
_DROPPED_COPY = re.compile(r"(.*rnns\.\d+\.)module\.(weight_hh_l0)")
_LAYER = re.compile(r"rnns\.(\d+)\.(?:module\.)?(weight_ih_l0|weight_hh_l0_raw|bias_ih_l0|bias_hh_l0)")
# tensors of fastai's other architectures -> what they are called
_OTHERS = (
    (re.compile(r".*rnns\.\d+\..*linear"), "a QRNN"),
    (re.compile(r".*rnns\.\d+\..*_reverse"), "an AWD-LSTM that reads in both directions"),
    (re.compile(r".*(mhra|attention|pos_enc|\.ff\.)"), "a Transformer of fastai's"),
    (re.compile(r"1\.layers\.\d+\.bias|1\.layers\.\d+\.weight"), "a classifier of fastai 1, whose head is another"),
)


def is_fastai_file(path: Path) -> bool:
    return path.suffix in FASTAI_SUFFIXES and path.is_file()


def load_fastai(
    path: Path,
    words: Sequence[str] | None = None,
    task: str | None = None,
    dtype: torch.dtype | str | None = None,
    device: torch.device | str | None = None,
    quantize: str | None = None,
) -> Model:
    """The model of a file; the head is the file's own unless `task` names another.

    words   its vocabulary, by which it knows what begins a text and what pads it
    """
    torch_device, torch_dtype = as_device(device), as_dtype(dtype)
    check_quantize(quantize, torch_dtype, torch_device)
    tensors = _read(path)
    family, stored_task = models.family("awd-lstm"), _task_of(tensors, path)
    config = family.config.from_dict(_sizes(tensors, PREFIXES[stored_task], path) | _special_ids(words))
    if words is not None and not 0 <= config.vocab_size - len(words) <= 8:  # some lists lack what fills them up
        raise CheckpointError(
            f"The vocabulary has {len(words):,} words, {path} rows for {config.vocab_size:,}. Do they belong together?"
        )
    task = stored_task if task is None else family.check_task(task)
    model = family.make(config, task, device="meta")
    assign_weights(
        model,
        Weights({path: list(tensors)}, opened={path: tensors}),
        new_head=task != stored_task,
        dtype=None if quantize else torch_dtype,
        device=torch_device,
    )
    return model if quantize is None else apply_precision(model, quantize)


def words_beside(path: Path) -> Path | None:
    """The vocabulary that lies beside a file of fastai's."""
    names = (f"{path.stem}{WORDS}", f"{path.stem}_vocab.json", "vocab.json")
    return next((p for p in map(path.with_name, names) if p.is_file()), None)


def save_fastai(
    model: Model, path: str | os.PathLike[str], words: Sequence[str] | None = None, overwrite: bool = False
) -> Path:
    """Write a model's tensors as fastai has them: its strict load takes the file.

    words   its vocabulary, which is written beside it (name.vocab.json)
    """
    target = Path(path).expanduser().absolute()
    if model.family.name != "awd-lstm":
        raise InputError(
            f"A .pth file is fastai's, and it has no {model.family.title}. Save to a folder: pipe.save('my-model')."
        )
    if model.quantized:
        raise InputError(
            f"This model was rounded to {model.quantized} when it was loaded; saved, the rounding would pass for its "
            "weights. Load it without quantize= and save that."
        )
    if target.is_dir() or (target.exists() and not overwrite):
        raise CheckpointError(
            f"{target} exists already. Choose another name, or pass overwrite=True to replace the file."
        )
    tensors = _with_twins({name: tensor.detach().cpu() for name, tensor in published_tensors(model)}, model)
    config: Any = model.config
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        targets = [target] if words is None else [target, target.with_name(target.stem + WORDS)]
        with atomic_paths(*targets) as parts:
            torch.save(tensors, parts[0])
            if words is not None:
                filled = [*words, *[FILLER] * (config.vocab_size - len(words))]
                parts[1].write_text(json.dumps(filled, ensure_ascii=False), encoding="utf-8")
    except (OSError, RuntimeError) as error:  # torch's own for a disk that is full
        raise CheckpointError(f"{target} cannot be written: {getattr(error, 'strerror', None) or error}.") from None
    return target


def _with_twins(tensors: dict[str, Tensor], model: Model) -> dict[str, Tensor]:
    """With the tensors that fastai stores twice, in the order of its own files."""
    config: Any = model.config
    prefix = PREFIXES[model.task]
    out: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        out[name] = tensor.contiguous()
        if name == f"{prefix}encoder.weight":
            out[f"{prefix}encoder_dp.emb.weight"] = out[name]
        elif name.endswith(".running_var"):
            out[name.replace("running_var", "num_batches_tracked")] = torch.tensor(0)
    if model.task == "causal-lm" and config.tie_word_embeddings:
        out["1.decoder.weight"] = out[f"{prefix}encoder.weight"]
    return out


# ---- reading


def _read(path: Path) -> dict[str, Tensor]:
    """The tensors of a file under fastai's names of today."""
    value = read_pickled(path, passed_over=_NOT_READ)
    if isinstance(value, dict) and isinstance(value.get("model"), dict):
        value = value["model"]
    tensors = table_of_tensors(value, path)
    copies = [m[0] for m in map(_DROPPED_COPY.fullmatch, tensors) if m and f"{m[1]}{m[2]}_raw" in tensors]
    return {name: tensor.detach() for name, tensor in tensors.items() if name not in copies}


def _task_of(tensors: dict[str, Tensor], path: Path) -> str:
    for pattern, other in _OTHERS:
        if name := next(filter(pattern.match, tensors), None):
            raise CheckpointError(f"{path} holds {other} ({name}), which Clearhead does not read: AWD-LSTM it does.")
    found = [task for task, prefix in PREFIXES.items() if f"{prefix}encoder.weight" in tensors]
    if not found:
        there = ", ".join(list(tensors)[:4]) or "nothing"
        raise CheckpointError(f"{path} is no AWD-LSTM of fastai's: it has no 0.encoder.weight, but {there}.")
    return found[0]


def _sizes(tensors: dict[str, Tensor], prefix: str, path: Path) -> dict[str, Any]:
    """The configuration that these tensors have."""
    words = tensors[f"{prefix}encoder.weight"]
    if words.ndim != 2:
        raise CheckpointError(
            f"{path}: {prefix}encoder.weight must be a matrix, and has the shape {tuple(words.shape)}."
        )
    twin = tensors.get(f"{prefix}encoder_dp.emb.weight")
    if twin is not None and not (twin.shape == words.shape and torch.equal(twin, words)):
        raise CheckpointError(f"{path} has two tables of words that differ, encoder.weight and encoder_dp.emb.weight.")
    widths = _widths(tensors, prefix, path)
    sizes: dict[str, Any] = {
        "vocab_sz": words.shape[0],
        "emb_sz": words.shape[1],
        "n_layers": len(widths),
        "n_hid": widths[0] if len(widths) > 1 else words.shape[1],
        "out_bias": "1.decoder.bias" in tensors,
    }
    output = tensors.get("1.decoder.weight")
    if output is not None:
        sizes["tie_weights"] = output.shape == words.shape and torch.equal(output, words)
    return sizes | (_classifier_sizes(tensors, path) if prefix == PREFIXES["sequence-classification"] else {})


def _widths(tensors: dict[str, Tensor], prefix: str, path: Path) -> list[int]:
    """How wide each layer is: the first ones alike, and the last as wide as the words."""
    names = [m for m in (_LAYER.fullmatch(name.removeprefix(prefix)) for name in tensors) if m]
    numbers = sorted({int(m[1]) for m in names})
    reads = width = tensors[f"{prefix}encoder.weight"].shape[1]
    widths: list[int] = []
    for n in numbers:
        hidden = tensors.get(f"{prefix}rnns.{n}.weight_hh_l0_raw")
        inputs = tensors.get(f"{prefix}rnns.{n}.module.weight_ih_l0")
        if hidden is None or inputs is None:
            raise CheckpointError(f"{path}: layer {n} lacks weight_hh_l0_raw or module.weight_ih_l0.")
        own = hidden.shape[-1]
        if tuple(hidden.shape) != (4 * own, own) or tuple(inputs.shape) != (4 * own, reads):
            raise CheckpointError(
                f"{path}: layer {n} reads {reads} numbers, and its matrices have the shapes {tuple(inputs.shape)} and "
                f"{tuple(hidden.shape)}: those of no LSTM."
            )
        widths.append(own)
        reads = own
    if numbers != list(range(len(numbers))) or not widths or widths[-1] != width or len(set(widths[:-1])) > 1:
        raise CheckpointError(
            f"{path}: words are {width} wide and the layers {', '.join(map(str, widths)) or 'none'}. In an AWD-LSTM "
            "all layers but the last are alike, and the last is as wide as the words."
        )
    return widths


def _classifier_sizes(tensors: dict[str, Tensor], path: Path) -> dict[str, Any]:
    """The head's layers, and whether there is dropout in them: it takes a number of its own."""
    widths: list[int] = []
    rates: list[float] = []
    while f"1.layers.{(n := len(widths))}.0.weight" in tensors:
        dense = {at: tensors.get(f"1.layers.{n}.{at}.weight") for at in (1, 2)}
        at = next((at for at, matrix in dense.items() if matrix is not None and matrix.ndim == 2), None)
        matrix = dense.get(at or 0)
        if matrix is None:
            raise CheckpointError(f"{path}: layer {n} of the classifier has no matrix (1.layers.{n}.2.weight).")
        widths.append(matrix.shape[0])
        rates.append((CLASSIFIER_DROPOUT["output_p"] if n == 0 else 0.1) if at == 2 else 0.0)
    if not widths:
        raise CheckpointError(f"{path} has a classifier's body and no head (1.layers.0.0.weight).")
    sizes = {"lin_ftrs": widths[:-1], "ps": rates[1:], "num_labels": widths[-1]}
    return CLASSIFIER_DROPOUT | sizes | {"output_p": rates[0]}


def _special_ids(words: Sequence[str] | None) -> dict[str, Any]:
    known = {word: n for n, word in enumerate(words or ())}
    ids = {"bos_token_id": BEGIN, "eos_token_id": BEGIN, "pad_token": PADDING}
    return {key: known[word] for key, word in ids.items() if word in known}
