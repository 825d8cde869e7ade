"""From a run to a folder that ships: packed, and as good as before; a sentence encoder with its modules."""

import importlib.util
import json
from pathlib import Path

import torch

import clearhead as ch
from clearhead.hub.packed import PACKED
from clearhead.pipeline import TextPipeline
from clearhead.train.objectives.sentence_pairs import SentenceContrastive
from tests.train.objectives.small import small, wordpiece

SHIP = Path(__file__).parents[2] / "zoo" / "ship.py"
TEXTS = ["the cat sat on the mat .", "a dog ran away", "the sea"]


def ship_module():
    spec = importlib.util.spec_from_file_location("ship", SHIP)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_sentence_encoder_is_packed_with_its_modules(tmp_path):
    objective = SentenceContrastive(wordpiece(), 16, normalize=True, max_seq_length=24)
    pipe = TextPipeline(small("bert", "features", wordpiece()), wordpiece(), sentence=objective.sentence())
    run, folder = tmp_path / "run", tmp_path / "packed"
    run.mkdir()
    folder.mkdir()
    pipe.save(run / "model")
    events = [{"event": "step", "step": n, "loss": 1 / n} for n in (1, 2)]
    events.append({"event": "evaluation", "step": 2, "metrics": {"loss": 0.123456}, "best": True})
    (run / "log.jsonl").write_text("\n".join(map(json.dumps, events)))
    ship_module().pack_run(run, folder)
    assert (folder / PACKED).is_file() and not (folder / "model.safetensors").exists()
    curve = json.loads((folder / "curve.json").read_text())
    assert curve == {"train": [[1, 1.0], [2, 0.5]], "valid": [[2, {"loss": 0.1235}]]}
    packed = ch.load(folder)
    assert packed.model.task == "features" and packed.sentence.max_seq_length == 24
    vectors = packed.embed(TEXTS)
    assert torch.allclose(vectors.norm(dim=-1), torch.ones(3), atol=1e-5)
    assert ((vectors * pipe.embed(TEXTS)).sum(-1) > 0.999).all()  # eight bits
