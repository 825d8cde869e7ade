"""CLIP's objective: parts of a batch give the gradients of the whole, the loss falls, and data in several forms."""

import copy
import json
from itertools import pairwise

import numpy as np
import pytest
import torch
from PIL import Image

import clearhead as ch
from clearhead.errors import InputError
from clearhead.image import ImageProcessor, ImageSettings
from clearhead.models import family
from clearhead.pipeline.clip import TextImageCodec
from clearhead.text.builders.train_clip import train_clip_tokenizer
from clearhead.train import fit, train
from clearhead.train.data import open_source
from clearhead.train.data.types import Batch
from clearhead.train.objectives.image_text import ImageTextContrastive

COLOURS = {"red": (220, 30, 30), "green": (30, 200, 40), "blue": (40, 60, 220), "white": (240, 240, 240)}
PLACES = {"left": (0, 8), "right": (8, 16)}


def drawn(colour: str, place: str, seed: int) -> Image.Image:
    """A square of a colour at one side of a dark picture with some noise."""
    pixels = np.random.default_rng(seed).integers(0, 60, (16, 16, 3), dtype=np.uint8)
    first, last = PLACES[place]
    pixels[4:12, first:last] = COLOURS[colour]
    return Image.fromarray(pixels)


def records(count: int, seed: int = 0) -> list[dict]:
    rng = np.random.default_rng(seed)
    made = []
    for n in range(count):
        colour, place = rng.choice(list(COLOURS)), rng.choice(list(PLACES))
        made.append({"image": drawn(colour, place, seed * 1000 + n), "caption": f"a {colour} square on the {place}"})
    return made


@pytest.fixture(scope="module")
def codec():
    tokenizer = train_clip_tokenizer((record["caption"] for record in records(40)), 600)
    return TextImageCodec(tokenizer, ImageProcessor(ImageSettings.square(16)))


def small(codec, dropout: float = 0.0, seed: int = 0):
    tower = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
    tower |= {"attention_dropout": dropout}
    tokenizer = codec.tokenizer
    text = {**tower, "vocab_size": len(tokenizer), "max_position_embeddings": 16}
    text |= {"eos_token_id": tokenizer.eos_token_id, "bos_token_id": tokenizer.bos_token_id}
    vision = {**tower, "image_size": 16, "patch_size": 4}
    clip = family("clip")
    torch.manual_seed(seed)
    config = clip.config.from_dict({"text_config": text, "vision_config": vision, "projection_dim": 12})
    return clip.make(config)


def batch_of(objective, some) -> Batch:
    return objective.collate([example for record in some for example in objective.encode(record)])


def gradients(model, objective, batches, gather=None):
    """As the loop does it."""
    model = copy.deepcopy(model).train()
    torch.manual_seed(3)
    objective.look_ahead(model, batches, gather)
    total = sum(batch.counts["loss"] for batch in batches)
    loss = 0.0
    for batch in batches:
        part = objective.losses(model, batch)["loss"] * (batch.counts["loss"] / total)
        loss += float(part)
        part.backward()
    return loss, {name: p.grad for name, p in model.named_parameters()}


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("sizes", [[12], [4, 4, 4], [1, 5, 6], [1] * 12])
def test_parts_give_the_gradients_of_the_whole(codec, sizes, masked):
    model = small(codec).double()
    objective = ImageTextContrastive(codec, 16, mask_same_captions=masked)
    some = records(12, seed=1)
    whole = batch_of(objective, some)
    model_inputs = objective.model_inputs

    def in_double(batch):
        return {name: t.double() if t.is_floating_point() else t for name, t in model_inputs(batch).items()}

    objective.model_inputs = in_double
    objective.vectors = lambda model, batch: tuple(
        model(**in_double(batch))[name] for name in ("text_embeds", "image_embeds", "scale")
    )
    loss, want = gradients(model, objective, [whole])
    bounds = np.cumsum([0, *sizes])
    parts = [batch_of(objective, some[a:b]) for a, b in pairwise(bounds)]
    again, got = gradients(model, objective, parts)
    assert abs(loss - again) < 1e-6
    for name, grad in want.items():
        torch.testing.assert_close(got[name], grad, rtol=1e-5, atol=1e-8, msg=name)
    if not masked:
        reference = copy.deepcopy(model).train()(**in_double(whole), return_loss=True).loss
        assert abs(float(reference) - loss) < 1e-6


def test_other_devices_are_compared_with(codec):
    """Two devices, each with half of the batch: together they have the gradients of the whole."""
    model, objective = small(codec), ImageTextContrastive(codec, 16)
    some = records(8, seed=2)
    _, want = gradients(model, objective, [batch_of(objective, some)])
    halves = [batch_of(objective, some[:5]), batch_of(objective, some[5:])]
    with torch.no_grad():
        vectors = [objective.vectors(copy.deepcopy(model).train(), half) for half in halves]
    known = [torch.cat([side[n] for side in vectors]) for n in (0, 1)]
    known.append(torch.cat([half.inputs["captions"] for half in halves]))
    summed = {}
    for rank, half in enumerate(halves):
        answers = iter(known)
        twin = copy.deepcopy(model).train()
        objective.look_ahead(twin, [half], lambda rows, answers=answers, rank=rank: (next(answers), 5 * rank))
        (objective.losses(twin, half)["loss"] * (half.counts["loss"] / 8)).backward()
        for name, p in twin.named_parameters():
            summed[name] = summed.get(name, 0) + p.grad
    for name, grad in want.items():
        torch.testing.assert_close(summed[name], grad, rtol=1e-4, atol=1e-6, msg=name)


def test_dropout_is_the_same_in_both_readings(codec):
    """With dropout the parts draw other numbers than the whole would, but the same when they are read again."""
    model, objective = small(codec, dropout=0.5), ImageTextContrastive(codec, 16)
    parts = [batch_of(objective, records(4, seed)) for seed in (3, 4)]
    model.train()
    torch.manual_seed(0)
    objective.look_ahead(model, parts, None)
    first = torch.cat([part.extra["gradient"][2] for part in parts])
    value = sum(float(objective.losses(model, part)["loss"]) * 0.5 for part in parts)
    assert abs(value - float(parts[0].extra["gradient"][0])) < 1e-6 and first.shape == (8, 12)
    torch.manual_seed(0)
    with torch.no_grad():
        texts = torch.cat([objective.vectors(model, part)[0] for part in parts])
    again = []
    for part in parts:
        torch.set_rng_state(part.extra["random"][0])
        with torch.no_grad():
            again.append(objective.vectors(model, part)[0])
    assert torch.equal(torch.cat(again), texts)


def test_the_loss_falls_and_pictures_are_told_apart(codec):
    model, objective = small(codec), ImageTextContrastive(codec, 16, mask_same_captions=True)
    result = fit(model, objective, records(64), valid=records(8, seed=9), steps=140, lr=3e-3, batch_size=16)
    assert result.losses[-1] < 0.5 * result.losses[0]
    pipe = objective.pipeline(model.eval(), "small")
    labels = [f"a {colour} square on the {place}" for colour in COLOURS for place in PLACES]
    found = [pipe.classify(record["image"], labels=labels)[0].label for record in records(20, seed=5)]
    right = np.mean([label == record["caption"] for label, record in zip(found, records(20, seed=5), strict=True)])
    assert right > 0.7
    assert {"loss", "text_to_image", "image_to_text"} <= result.metrics.keys()


def test_a_tokenizer_of_clips_kind(codec, tmp_path):
    tokenizer = codec.tokenizer
    assert tokenizer.eos_token_id == len(tokenizer) - 1
    ids = tokenizer.encode("A RED square 红色 🎈")
    assert ids[0] == tokenizer.bos_token_id and ids[-1] == tokenizer.eos_token_id and ids.count(ids[-1]) == 1
    assert tokenizer.decode(ids, skip_special_tokens=True) == "a red square 红色 🎈"
    assert tokenizer.tokenize("red square") == ["red</w>", "square</w>"]
    import transformers

    tokenizer.save(tmp_path)
    there = transformers.AutoTokenizer.from_pretrained(tmp_path)
    for text in ("a red square on the left", "Ünïcode 红 it's 42!"):
        assert there(text)["input_ids"] == tokenizer.encode(text)


def test_examples_and_mistakes(codec):
    objective = ImageTextContrastive(codec, 16, flip=1.0)
    [example] = objective.encode(records(1)[0])
    assert example["pixels"].shape == (3 * 16 * 16,) and example["pixels"].dtype == np.uint8
    mirrored = objective.noise(example, np.random.default_rng(0))
    as_picture = [e["pixels"].reshape(3, 16, 16) for e in (example, mirrored)]
    assert np.array_equal(as_picture[0][:, :, ::-1], as_picture[1])
    batch = objective.collate([example, example])
    pixels = objective.model_inputs(batch)["pixel_values"]
    torch.testing.assert_close(pixels[:1], codec.image_processor(records(1)[0]["image"])["pixel_values"])
    with pytest.raises(InputError, match="needs a tokenizer and an image processor"):
        ImageTextContrastive(codec.tokenizer, 16)
    with pytest.raises(InputError, match="flip"):
        ImageTextContrastive(codec, 16, flip=2)
    with pytest.raises(InputError, match=r"Set objective\.image_size=16"):
        ImageTextContrastive(codec, 16, image_size=32).training_module(small(codec))
    with pytest.raises(InputError, match="trains a CLIP"):
        objective.training_module(ch.load("random-gpt2").model)
    with pytest.raises(InputError, match=r"line 7.*There is no picture"):
        list(objective.encode({"image": "absent.png", "caption": "x", "where": "data.csv, line 7"}))


# ---- data


def write_pictures(folder, count=6, texts=True):
    folder.mkdir(parents=True, exist_ok=True)
    made = records(count, seed=7)
    for n, record in enumerate(made):
        record["image"].save(folder / f"{n}.png")
        if texts:
            (folder / f"{n}.txt").write_text(record["caption"] + "\n", encoding="utf-8")
    return [record["caption"] for record in made]


def test_captions_beside_pictures_and_in_tables(tmp_path):
    captions = write_pictures(tmp_path / "a")
    source = open_source(str(tmp_path / "a"), format="pictures")
    read = list(source.records())
    assert [record["caption"] for record in read] == captions
    assert all(record["image"].endswith(".png") for record in read)
    rows = [{"image": f"a/{n}.png", "caption": caption} for n, caption in enumerate(captions)]
    (tmp_path / "t.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "t.csv").write_text("file,words\n" + "".join(f"{r['image']},{r['caption']}\n" for r in rows))
    table = open_source(str(tmp_path / "t.jsonl"), format="pictures")
    assert [record["caption"] for record in table.records()] == captions
    columns = {"image": "file", "caption": "words"}
    other = open_source(str(tmp_path / "t.csv"), format="pictures", columns=columns)
    both = [[(r["image"], r["caption"]) for r in some.records()] for some in (other, table)]
    assert both[0] == both[1]
    write_pictures(tmp_path / "b", texts=False)
    (tmp_path / "b" / "metadata.csv").write_text("image,caption\n0.png,a thing\n")
    assert [r["caption"] for r in open_source(str(tmp_path / "b"), format="pictures").records()] == ["a thing"]


def test_a_changed_picture_is_changed_data(tmp_path):
    write_pictures(tmp_path / "a")
    before = open_source(str(tmp_path / "a"), format="pictures").fingerprint()
    assert before == open_source(str(tmp_path / "a"), format="pictures").fingerprint()
    drawn("white", "left", 99).save(tmp_path / "a" / "3.png")
    assert open_source(str(tmp_path / "a"), format="pictures").fingerprint() != before


def test_what_is_wrong_with_pictures_is_told(tmp_path):
    write_pictures(tmp_path / "a")
    (tmp_path / "a" / "2.txt").unlink()
    with pytest.raises(InputError, match=r"1 pictures in .* have no caption.*2\.png"):
        list(open_source(str(tmp_path / "a"), format="pictures").records())
    (tmp_path / "t.csv").write_text("image,caption\nnot-there.png,a thing\n")
    with pytest.raises(InputError, match=r"not-there\.png, which is not there"):
        list(open_source(str(tmp_path / "t.csv"), format="pictures").records())
    (tmp_path / "empty").mkdir()
    for path, match in (("empty", "no pictures in"), ("nowhere", "does not exist")):
        with pytest.raises(InputError, match=match):
            open_source(str(tmp_path / path), format="pictures")


def test_a_run_stops_and_goes_on_the_same(tmp_path):
    """A batch in one part or in four: the same numbers but for rounding, and a model that works."""
    write_pictures(tmp_path / "pictures", 24)
    tower = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}
    recipe = {
        "objective": {"name": "image-text-contrastive", "image_size": 16},
        "data": {"train": str(tmp_path / "pictures"), "format": "pictures", "validation_fraction": 0.2},
        "model": {
            "family": "clip",
            "config": {
                "projection_dim": 8,
                "text_config": {**tower, "max_position_embeddings": 16},
                "vision_config": {**tower, "patch_size": 8},
            },
        },
        "tokenizer": {"kind": "bpe", "vocab_size": 560},
        "batch": {"size": 12, "length": 16},
        "steps": 6,
        "device": "cpu",
        "log_every": 1,
    }
    losses = []
    for parts in (1, 4):
        events = []
        out = tmp_path / f"run{parts}"
        settings = copy.deepcopy(recipe) | {"out": str(out)}
        settings["batch"]["gradient_accumulation_steps"] = parts
        result = train(settings, watchers=[events.append])
        losses.append([event["loss"] for event in events if event["event"] == "step"])
        assert result.finished and "text_to_image" in result.metrics
    assert losses[0] == pytest.approx(losses[1], rel=1e-4)
    pipe = ch.load(result.model)
    assert pipe.similarity("a red square", tmp_path / "pictures" / "0.png").shape == (1, 1)
    assert pipe.image_processor.settings.crop_size == {"height": 16, "width": 16}
    assert pipe.model.config.text_config.eos_token_id == pipe.tokenizer.eos_token_id
