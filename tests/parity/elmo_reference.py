"""ELMo in plain numpy, from the paper and the layout of the published files: one word, one step, one direction at once.

It shares nothing with the library: it reads the files with h5py, and knows TensorFlow's conventions as they are.
"""

import json
from pathlib import Path

import h5py
import numpy as np

CLIPS = {"cell": 0, "state": 0}  # how many numbers were clipped by the last call of `embed`


def write_files(folder: Path, options: dict, seed: int, scale: float = 0.4) -> None:
    """Random weights for these options, as bilm-tf stores them."""
    draw = np.random.default_rng(seed)
    lstm, cnn = options["lstm"], options["char_cnn"]
    count = sum(number for _, number in cnn["filters"])
    width, size, character = lstm["projection_dim"], lstm["dim"], cnn["embedding"]["dim"]
    shapes = {"char_embed": (261, character)}
    for n, (seen, number) in enumerate(cnn["filters"]):
        shapes |= {f"CNN/W_cnn_{n}": (1, seen, character, number), f"CNN/b_cnn_{n}": (number,)}
    for n in range(cnn.get("n_highway") or 0):
        for part in ("carry", "transform"):
            shapes |= {f"CNN_high_{n}/W_{part}": (count, count), f"CNN_high_{n}/b_{part}": (count,)}
    if count != width:
        shapes |= {"CNN_proj/W_proj": (count, width), "CNN_proj/b_proj": (width,)}
    for side in (0, 1):
        for n in range(lstm["n_layers"]):
            cell = f"RNN_{side}/RNN/MultiRNNCell/Cell{n}/LSTMCell/"
            shapes |= {f"{cell}W_0": (2 * width, 4 * size), f"{cell}B": (4 * size,)}
            if size != width or options.get("always_projects"):
                shapes[f"{cell}W_P_0"] = (size, width)
    folder.mkdir(parents=True, exist_ok=True)
    with h5py.File(folder / "weights.hdf5", "w") as file:
        for name, shape in shapes.items():
            file.create_dataset(name, data=draw.normal(size=shape) * scale, dtype="float32")
    stored = {key: value for key, value in options.items() if key != "always_projects"}
    (folder / "options.json").write_text(json.dumps(stored))


def embed(folder: Path, words: list[str]) -> np.ndarray:
    """(layers, words, 2 · projection_dim) of one sentence."""
    options = json.loads((folder / "options.json").read_text())
    CLIPS.update(cell=0, state=0)
    with h5py.File(folder / "weights.hdf5") as file:
        tokens = [_token(file, options, characters) for characters in _characters(options, words)]
        ahead = _direction(file, options, 0, tokens)
        back = [layer[::-1] for layer in _direction(file, options, 1, tokens[::-1])]
    layers = [np.array([np.concatenate([t, t]) for t in tokens])]
    layers += [np.concatenate([np.array(f), np.array(b)], -1) for f, b in zip(ahead, back, strict=True)]
    return np.stack(layers)[:, 1:-1]


def _characters(options: dict, words: list[str]) -> list[list[int]]:
    room = options["char_cnn"]["max_characters_per_token"]
    spelt = [[256], *(list(word.encode()[: room - 2]) for word in words), [257]]
    rows = [[258, *spelling, 259] for spelling in spelt]
    return [row + [260] * (room - len(row)) for row in rows]


def _token(file: h5py.File, options: dict, characters: list[int]) -> np.ndarray:
    cnn = options["char_cnn"]
    table = file["char_embed"][...].astype(np.float64)
    found = []
    for n, (seen, number) in enumerate(cnn["filters"]):
        weight, bias = file[f"CNN/W_cnn_{n}"][...][0].astype(np.float64), file[f"CNN/b_cnn_{n}"][...]
        best = np.full(number, -np.inf)
        for start in range(len(characters) - seen + 1):
            answer = bias + sum(table[characters[start + k]] @ weight[k] for k in range(seen))
            best = np.maximum(best, answer)
        found.append(np.tanh(best) if cnn["activation"] == "tanh" else np.maximum(best, 0))
    x = np.concatenate(found)
    for n in range(cnn.get("n_highway") or 0):
        names = ("W_carry", "b_carry", "W_transform", "b_transform")
        part = {name: file[f"CNN_high_{n}/{name}"][...] for name in names}
        gate = _sigmoid(x @ part["W_carry"] + part["b_carry"])
        x = gate * np.maximum(x @ part["W_transform"] + part["b_transform"], 0) + (1 - gate) * x
    if "CNN_proj" in file:
        x = x @ file["CNN_proj/W_proj"][...] + file["CNN_proj/b_proj"][...]
    return x


def _direction(file: h5py.File, options: dict, side: int, tokens: list[np.ndarray]) -> list[list[np.ndarray]]:
    """The outputs of each layer, in the order in which the tokens come."""
    lstm = options["lstm"]
    inputs, layers = tokens, []
    for n in range(lstm["n_layers"]):
        cell = file[f"RNN_{side}/RNN/MultiRNNCell/Cell{n}/LSTMCell"]
        kernel, bias = cell["W_0"][...].astype(np.float64), cell["B"][...]
        projection = cell["W_P_0"][...] if "W_P_0" in cell else None
        c, h, outputs = np.zeros(lstm["dim"]), np.zeros(lstm["projection_dim"]), []
        for x in inputs:
            i, j, f, o = np.split(np.concatenate([x, h]) @ kernel + bias, 4)
            c = _sigmoid(f + 1) * c + _sigmoid(i) * np.tanh(j)
            c = _clip(c, lstm.get("cell_clip"), "cell")
            h = _sigmoid(o) * np.tanh(c)
            if projection is not None:
                h = _clip(h @ projection, lstm.get("proj_clip"), "state")
            outputs.append(h + x if lstm["use_skip_connections"] and n else h)
        layers.append(outputs)
        inputs = outputs
    return layers


def _clip(x: np.ndarray, most: float | None, what: str) -> np.ndarray:
    if not most:
        return x
    CLIPS[what] += int((np.abs(x) > most).sum())
    return np.clip(x, -most, most)


def _sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))
