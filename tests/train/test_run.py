"""From a recipe to a model that can be loaded: every objective, from random weights and from a checkpoint."""

import importlib
import json
import logging
import signal
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

import clearhead as ch
from clearhead import models
from clearhead.errors import CheckpointError, ConfigError, InputError
from clearhead.text import load_tokenizer, train_tokenizer
from clearhead.train import evaluate, read_recipe, train
from clearhead.train.objectives import OBJECTIVES, objective_class
from clearhead.train.objectives.causal import CausalLM
from clearhead.train.objectives.distillation import student_of
from clearhead.train.run.data import workers_for
from tests.tiny import tokenizer as tiny_tokenizer
from tests.train.runs import WORDS, check_command, left_by, recipe, weights

BERT = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16,
        "max_position_embeddings": 40}  # fmt: skip
GPT2 = {"n_embd": 16, "n_layer": 1, "n_head": 2, "n_positions": 40}
BART = {"d_model": 16, "encoder_layers": 1, "decoder_layers": 1, "encoder_attention_heads": 2,
        "decoder_attention_heads": 2, "encoder_ffn_dim": 16, "decoder_ffn_dim": 16,
        "max_position_embeddings": 40}  # fmt: skip
FAMILIES = {
    "gpt2": GPT2, "openai-gpt": GPT2, "bert": BERT, "bart": BART,
    "roberta": BERT | {"max_position_embeddings": 44},
    "albert": BERT | {"embedding_size": 8},
    "electra": BERT | {"embedding_size": 8},
    "distilbert": {"dim": 16, "n_layers": 1, "n_heads": 2, "hidden_dim": 16, "max_position_embeddings": 40},
    "xlm": {"emb_dim": 16, "n_layers": 1, "n_heads": 2, "max_position_embeddings": 40},
    "xlnet": {"d_model": 16, "n_layer": 1, "n_head": 2, "d_inner": 16},
    "t5": {"d_model": 16, "num_layers": 1, "num_heads": 2, "d_kv": 8, "d_ff": 16},
    "elmo": {"lstm_size": 12, "projection_size": 6, "filters": [[1, 4], [2, 6]], "character_size": 4},
    "transformer": {"d_model": 16, "encoder_layers": 1, "decoder_layers": 1, "attention_heads": 2,
                    "feedforward_size": 16},
    "rnn": {"embedding_size": 8, "hidden_size": 16},
    "retro": {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "head_dim": 8, "chunk_size": 8,
              "chunked_attention_layers": [2], "encoder_hidden_size": 16, "encoder_heads": 2, "encoder_head_dim": 8},
}  # fmt: skip


def text(n: int, length: int = 9) -> str:
    return " ".join(WORDS[(n * 7 + k * (n % 5 + 1)) % len(WORDS)] for k in range(length))


def context(n: int) -> dict:
    words = text(n, 14).split()
    return {"context": " ".join(words), "answers": {"text": [words[5]], "answer_start": [len(" ".join(words[:5])) + 1]}}


ROWS = {
    "text": lambda n: {"text": f"{text(n)} . {text(n + 1)} . {text(n + 2)} . {text(n + 3)} ."},
    "pairs": lambda n: {"source": text(n, 6), "target": text(n + 3, 6)},
    "labels": lambda n: {"text": text(n), "label": ["good", "bad", "so so"][n % 3]},
    "both": lambda n: {"text": text(n), "text_pair": text(n + 1), "label": ["yes", "no"][n % 2]},
    "entailment": lambda n: {"premise": text(n), "hypothesis": text(n + 1), "label": ["yes", "no"][n % 2]},
    "tags": lambda n: {"tokens": text(n, 5).split(), "tags": ["O", "B-X", "I-X", "O", "O"]},
    "questions": lambda n: {"question": text(n, 4), **context(n)},
    "choices": lambda n: {"prompt": text(n), "choices": [text(n + k, 3) for k in (1, 2, 3)], "label": n % 3},
    "nli": lambda n: {"sentence1": text(n), "sentence2": text(n + 1), "label": ["yes", "no"][n % 2]},
    "scores": lambda n: {"sentence1": text(n), "sentence2": text(n + 1), "score": n % 5 / 4},
    "neighbors": lambda n: {"input_ids": [(n * 7 + k * (n % 5 + 1)) % 300 for k in range(20)],
                            "neighbor_ids": [[[(n + k) % 300 for k in range(16)]] * 2] * 2},
    "triplets": lambda n: {"anchor": text(n), "positive": text(n + 1), "negative": text(n + 2)},
}  # fmt: skip

# objective -> its rows, the family, the tokenizer that is trained for it, the class in transformers, and options
CASES = {
    "causal-lm": ("text", "gpt2", "bpe", "AutoModelForCausalLM", {}),
    "recurrent-lm": ("text", "rnn", "bpe", None, {}),
    "retrieval-lm": ("neighbors", "retro", None, None, {}),
    "masked-lm": ("text", "roberta", "bpe", "AutoModelForMaskedLM", {}),
    "bidirectional-lm": ("text", "elmo", "words", None, {}),
    "bert-pretraining": ("text", "bert", "wordpiece", "AutoModelForPreTraining", {}),
    "sentence-order": ("text", "albert", "unigram", "AutoModelForPreTraining", {}),
    "translation-lm": ("pairs", "xlm", "wordpiece", None, {}),
    "replaced-token": ("text", "electra", "wordpiece", "AutoModelForPreTraining", {}),
    "permutation-lm": ("text", "xlnet", "unigram", "AutoModelForCausalLM", {}),
    "span-corruption": ("text", "t5", "unigram", "AutoModelForSeq2SeqLM", {}),
    "denoising": ("text", "bart", "bpe", "AutoModelForSeq2SeqLM", {}),
    "seq2seq": ("pairs", "transformer", "bpe", None, {}),
    "prompted-lm": ("pairs", "gpt2", "bpe", "AutoModelForCausalLM", {}),
    "classification": ("labels", "bert", "wordpiece", "AutoModelForSequenceClassification", {}),
    "tagging": ("tags", "distilbert", "wordpiece", "AutoModelForTokenClassification", {}),
    "question-answering": ("questions", "bert", "wordpiece", "AutoModelForQuestionAnswering", {}),
    "multiple-choice": ("choices", "bert", "wordpiece", "AutoModelForMultipleChoice", {}),
    "gpt-classification": ("labels", "gpt2", "bpe", "AutoModelForSequenceClassification", {}),
    "gpt-entailment": ("entailment", "gpt2", "bpe", "AutoModelForSequenceClassification", {}),
    "gpt-similarity": ("both", "gpt2", "bpe", "AutoModelForSequenceClassification", {}),
    "gpt-multiple-choice": ("choices", "gpt2", "bpe", None, {}),
    "distillation": ("text", "distilbert", None, "AutoModelForMaskedLM", {"teacher": ("masked-lm", "bert")}),
    "classification-distillation": ("labels", "distilbert", None, "AutoModelForSequenceClassification",
                                    {"teacher": ("classification", "bert")}),
    "sentence-softmax": ("nli", "bert", "wordpiece", "AutoModel", {}),
    "sentence-similarity": ("scores", "bert", "wordpiece", "AutoModel", {}),
    "sentence-contrastive": ("triplets", "bert", "wordpiece", "AutoModel", {}),
    "sentence-triplet": ("triplets", "bert", "wordpiece", "AutoModel", {}),
}  # fmt: skip


def rows_file(folder: Path, kind: str, count: int = 24) -> Path:
    path = folder / f"{kind}.jsonl"
    path.write_text("".join(json.dumps(ROWS[kind](n)) + "\n" for n in range(count)))
    return path


def case(folder: Path, name: str, out: str, family: str | None = None, **changes) -> dict:
    kind, own_family, tokenizer, _, options = CASES[name]
    data = rows_file(folder, kind)
    family = family or own_family
    asked = {
        "objective": {"name": name},
        "out": str(folder / out),
        "data": {"train": str(data), "valid": str(rows_file(folder, kind)), "test": str(data)},
        "tokenizer": {"kind": tokenizer or "wordpiece", "vocab_size": 420 if tokenizer == "bpe" else 160},
        "model": {"family": family, "config": dict(FAMILIES[family])},
        "batch__length": 36,
        "steps": 3,
        "evaluation__batches": 1,
    }
    if kind == "neighbors" or not objective_class(name).codec_kinds:  # its records are made of a tokenizer's ids
        tiny_tokenizer("bpe").save(folder / "tokenizer")
        asked["tokenizer"] = {"start": str(folder / "tokenizer")}
    if "teacher" in options:
        taught, by = options["teacher"]
        teacher = folder / "teacher"
        if not teacher.exists():
            train(case(folder, taught, "teacher", by, tokenizer={"kind": "wordpiece", "vocab_size": 160}))
        asked["objective"]["teacher"] = str(teacher / "model")
        asked["tokenizer"] = {"start": str(teacher / "model")}
    return recipe(folder, **asked | changes)


def stopping_at(step: int):
    return lambda event: event["event"] == "step" and event["step"] == step and signal.raise_signal(signal.SIGINT)


def test_every_objective_has_a_case():
    # word vectors have no gradients: test_word_vectors.py; pictures: objectives/test_image_text.py
    assert CASES.keys() | {"word-vectors", "image-text-contrastive"} == OBJECTIVES.keys()


@pytest.mark.parametrize("name", CASES)
def test_an_objective_from_random_weights(tmp_path, name, caplog):
    straight = train(case(tmp_path, name, "straight"))
    assert straight.finished and straight.step == 3
    assert straight.metrics and straight.test and all(isinstance(v, float) for v in straight.metrics.values())
    said = case(tmp_path, name, "stopped")
    assert not train(said, watchers=[stopping_at(1)]).finished
    assert train(said).finished
    assert left_by(tmp_path / "stopped") == left_by(tmp_path / "straight")

    pipe = ch.load(str(straight.model))
    assert pipe.model.task == ("masked-lm" if name == "distillation" else pipe.model.task)
    assert len(pipe.codec) <= pipe.model.config.vocab_size
    check_command(read_recipe(said), straight.model)
    check_evaluation(straight, said["data"]["test"])
    auto = CASES[name][3]
    if auto is not None:
        check_transformers(straight.model, auto, pipe, caplog)


def check_evaluation(result, test: str) -> None:
    """A saved model is measured later as at the end of its training."""
    kind = objective_class(read_recipe(result.folder / "recipe.yaml").objective["name"])
    if kind.not_saved:
        with pytest.raises(InputError, match="does not have any more"):
            evaluate(result.model, test)
    else:
        assert evaluate(result.model, test).metrics == pytest.approx(result.test, rel=1e-6)


def check_transformers(folder: Path, auto: str, pipe, caplog) -> None:
    transformers = importlib.import_module("transformers")
    model, told = getattr(transformers, auto).from_pretrained(folder, output_loading_info=True)
    assert not told["missing_keys"] and not told["mismatched_keys"], told
    tokens = transformers.AutoTokenizer.from_pretrained(folder)
    assert tokens("the cat sat .")["input_ids"] == pipe.tokenizer("the cat sat .")["input_ids"]
    ids = torch.tensor([[5, 6, 7, 8]])
    more = {"decoder_input_ids": ids} if model.config.is_encoder_decoder else {}
    if auto in ("AutoModelForMaskedLM", "AutoModelForSeq2SeqLM", "AutoModelForTokenClassification"):
        with torch.no_grad():
            theirs, ours = model.eval()(ids, **more).logits, pipe.model(ids, **more).logits
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)


# ---- from a checkpoint


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    """Checkpoints to go on from: one for words, one for classes."""
    folder = tmp_path_factory.mktemp("base")
    return {
        "bert": train(case(folder, "bert-pretraining", "bert")).model,
        "gpt2": train(case(folder, "causal-lm", "gpt2")).model,
        "classes": train(case(folder, "classification", "classes")).model,
        "bart": train(case(folder, "denoising", "bart")).model,
    }


def go_on(folder: Path, name: str, start: Path, **changes) -> Path:
    result = train(case(folder, name, "run", **{"model": {"start": str(start)}, "tokenizer": {}} | changes))
    assert result.finished
    return result.model


def files_of(folder: Path) -> dict:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


@pytest.mark.parametrize(
    "name, start",
    [
        ("causal-lm", "gpt2"), ("prompted-lm", "gpt2"), ("gpt-entailment", "gpt2"), ("seq2seq", "bart"),
        ("masked-lm", "bert"), ("classification", "bert"), ("tagging", "bert"), ("question-answering", "bert"),
        ("multiple-choice", "bert"), ("sentence-contrastive", "bert"), ("classification", "classes"),
    ],
)  # fmt: skip
def test_going_on_from_a_checkpoint(tmp_path, base, name, start):
    before = files_of(base[start])
    model = go_on(tmp_path, name, base[start], optimizer__lr=1e-6)
    assert files_of(base[start]) == before
    ours, theirs = ch.load(str(model)).model, ch.load(str(base[start])).model
    table, was = ours.token_tables()[0].weight, theirs.token_tables()[0].weight
    torch.testing.assert_close(table[: len(was)], was, rtol=0, atol=1e-4)  # it began with what was learnt
    assert (table[: len(was)] != was).any()


@pytest.mark.parametrize("name, said, kept", [("distillation", "teacher", None), ("masked-lm", "bert", [2, 1])])
def test_a_student_begins_as_a_part_of_its_teacher(tmp_path, name, said, kept):
    """The student of the recipe is the one of `student_of`, in float32; DistilBERT is BERT's."""
    config = FAMILIES["bert"] | {"num_hidden_layers": 3}
    bert = train(case(tmp_path, "bert-pretraining", "bert", model__config=config)).model
    asked = {"student_of": said.replace("bert", str(bert)), "layers": kept}
    changes = {"model": asked, "tokenizer": {}, "optimizer__lr": 1e-7, "steps": 1}
    if name == "distillation":
        changes["objective"] = {"name": name, "teacher": str(bert)}
    model = train(case(tmp_path, name, "student", **changes)).model
    ours, theirs = ch.load(str(model)), ch.load(str(bert), task="masked-lm")
    assert ours.model.family.name == "distilbert" and ours.tokenizer.get_vocab() == theirs.tokenizer.get_vocab()
    expected = student_of(theirs.model, kept)
    assert ours.model.config.num_hidden_layers == 2 == len(expected.stack.layers)
    for (key, weight), other in zip(ours.model.state_dict().items(), expected.state_dict().values(), strict=True):
        torch.testing.assert_close(weight, other, rtol=0, atol=1e-5, msg=key)


@pytest.mark.parametrize(
    "changes, words",
    [
        ({"model": {"student_of": "teacher"}}, "objective names none"),
        ({"model": {"student_of": "x", "family": "bert"}}, "give one of model.start"),
        ({"model": {"student_of": "x", "config": {"hidden_size": 8}}}, "leave model.config out"),
        ({"model": {"start": "x", "layers": 3}}, "are those of a student"),
        ({"model": {"student_of": "x"}, "tokenizer": {"kind": "bpe"}}, "learnt the words of its own tokenizer"),
    ],
)
def test_students_that_cannot_be(tmp_path, changes, words):
    with pytest.raises(ConfigError, match=words):
        train(case(tmp_path, "masked-lm", "run", **{"tokenizer": {}} | changes))
    assert not (tmp_path / "run").exists()


def test_a_student_of_too_many_layers(tmp_path, base):
    with pytest.raises(InputError, match="1 to 1, not 2"):
        train(case(tmp_path, "masked-lm", "run", model={"student_of": str(base["bert"]), "layers": 2}, tokenizer={}))
    assert not (tmp_path / "run").exists()


def two_vocabularies(folder: Path) -> Path:
    """A translator whose source has words of its own."""
    words = [text(n) for n in range(30)]
    source = train_tokenizer(words, "wordpiece", 90, show_progress=False)
    target = train_tokenizer([w.upper() for w in words], "unigram", 60, show_progress=False)
    family = models.family("transformer")
    config = family.config.from_dict(FAMILIES["transformer"] | {
        "vocab_size": len(target), "source_vocab_size": len(source), "tie_source_embeddings": False,
        "pad_token_id": target.pad_token_id, "eos_token_id": target.eos_token_id,
        "decoder_start_token_id": target.eos_token_id})  # fmt: skip
    ch.pipeline.TextPipeline(family.make(config), source.with_target(target)).save(folder)
    return folder


def test_a_tokenizer_for_each_language_is_handed_on(tmp_path):
    before = ch.load(str(two_vocabularies(tmp_path / "two")))
    model = go_on(tmp_path, "seq2seq", tmp_path / "two", evaluation__sample=text(1), optimizer__weight_decay=0)
    after = ch.load(str(model))
    assert after.tokenizer.encode(text(3)) == before.tokenizer.encode(text(3))
    assert after.tokenizer.get_vocab() == before.tokenizer.get_vocab()
    assert after.tokenizer.target.get_vocab() == before.tokenizer.target.get_vocab() != after.tokenizer.get_vocab()
    seen = (after.model.token_tables()[1].weight != before.model.token_tables()[1].weight).any(1).nonzero()
    read = {n for k in range(60) for n in before.tokenizer.encode(ROWS["pairs"](k)["source"])}
    assert read >= set(seen.flatten().tolist()) != set()  # the source was read by its own numbers
    again = go_on(tmp_path / "two", "seq2seq", model)
    assert ch.load(str(again)).tokenizer.get_vocab() == before.tokenizer.get_vocab()


def test_an_objective_that_knows_one_language(tmp_path):
    two_vocabularies(tmp_path / "two")
    with pytest.raises(ConfigError, match="a tokenizer for each of two languages"):
        go_on(tmp_path, "denoising", tmp_path / "two")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    "name, options, words",
    [
        ("seq2seq", {"num_beam": 2}, "Did you mean num_beams"),
        ("seq2seq", {"num_beams": 0}, "num_beams is 0"),
        ("seq2seq", {"num_return_sequences": 2}, "answered once"),
        ("question-answering", {"num_beams": 2}, "evaluated in one way"),
        ("masked-lm", {"num_beams": 2}, "evaluated in one way"),
    ],
)
def test_test_options_are_checked_before_the_run(tmp_path, name, options, words):
    with pytest.raises(ConfigError, match=f"evaluation.test_options: .*{words}"):
        train(case(tmp_path, name, "run", evaluation__test_options=options))
    assert not (tmp_path / "run").exists()


def test_options_that_go_with_beams_go_with_the_objectives_own(tmp_path):
    changes = {"evaluation__test_options": {"length_penalty": 2.0, "early_stopping": True, "max_new_tokens": 3}}
    assert "bleu" in train(case(tmp_path, "seq2seq", "run", **changes)).test


def test_test_options_without_test_data(tmp_path):
    changes = {"data": {"train": str(rows_file(tmp_path, "pairs"))}, "evaluation": {"test_options": {"num_beams": 2}}}
    with pytest.raises(ConfigError, match=r"set data\.test"):
        train(case(tmp_path, "seq2seq", "run", **changes))


def test_another_number_of_labels(tmp_path, base):
    rows = "".join(json.dumps({"text": text(n), "label": f"class {n % 5}"}) + "\n" for n in range(20))
    (tmp_path / "five.jsonl").write_text(rows)
    model = go_on(
        tmp_path,
        "classification",
        base["classes"],
        data={"train": str(tmp_path / "five.jsonl"), "validation_fraction": 0.1},
    )
    config = ch.load(str(model)).model.config
    assert list(config.id2label.values()) == [f"class {n}" for n in range(5)]


def test_lora_is_merged_and_kept(tmp_path, base):
    model = go_on(tmp_path, "causal-lm", base["gpt2"], lora={"rank": 2}, optimizer__lr=0.05)
    adapter = tmp_path / "run/adapter"
    assert (adapter / "adapter_config.json").exists()
    from clearhead.hub.adapter import load_adapter
    from clearhead.nn.lora import merge

    plain = ch.load(str(base["gpt2"])).model
    again = merge(load_adapter(plain, adapter))
    ids = torch.tensor([[1, 2, 3, 4]])
    merged = ch.load(str(model)).model
    torch.testing.assert_close(again(ids).logits, merged(ids).logits, rtol=1e-4, atol=1e-5)
    before = ch.load(str(base["gpt2"])).model
    assert (before(ids).logits - merged(ids).logits).abs().max() > 1e-4
    one, other = weights(tmp_path / "run"), ch.load(str(base["gpt2"])).model.state_dict()
    assert (one["transformer.wte.weight"] == other["stack.embed.tokens.weight"]).all()  # all else is as it was


def test_lora_with_a_new_head(tmp_path, base):
    model = go_on(tmp_path, "classification", base["bert"], lora={"rank": 2})
    assert ch.load(str(model)).model.task == "sequence-classification"


@pytest.mark.parametrize("what", ["encoder", "embeddings", "all-but-head"])
def test_freezing(tmp_path, base, what):
    model = go_on(tmp_path, "classification", base["bert"], optimizer={"lr": 0.05, "freeze": what})
    own, was = ch.load(str(model)).model, ch.load(str(base["bert"])).model
    assert (own.stack.embed.tokens.weight == was.stack.embed.tokens.weight).all()
    same = (own.stack.layers[0].attention.query.weight == was.stack.layers[0].attention.query.weight).all()
    assert bool(same) == (what != "embeddings")


def test_sentence_vectors_elsewhere(tmp_path, base):
    sentence_transformers = pytest.importorskip("sentence_transformers")
    model = go_on(tmp_path, "sentence-similarity", base["bert"], objective__normalize=True)
    texts = ["the cat sat", "a small dog ran near the house"]
    ours = ch.load(str(model)).embed(texts)
    theirs = sentence_transformers.SentenceTransformer(str(model), device="cpu").encode(texts, convert_to_tensor=True)
    torch.testing.assert_close(ours, theirs.cpu(), rtol=1e-4, atol=1e-5)


def test_a_new_tokenizer_reads_as_its_objective_does(tmp_path):
    """A byte-level tokenizer for masked words puts its marks around a text, as RoBERTa's does."""
    said = case(tmp_path, "masked-lm", "run", steps=1)
    pipe = ch.load(str(train(said).model))
    ids = pipe.tokenizer("the cat")["input_ids"]
    assert ids[0] == pipe.tokenizer.cls_token_id and ids[-1] == pipe.tokenizer.sep_token_id
    assert pipe.fill(f"the {pipe.tokenizer.mask_token} sat")[0]


# ---- what is written, and what is left out


def test_a_sample_without_a_warning(tmp_path, caplog):
    seen = []
    with caplog.at_level(logging.WARNING):
        train(recipe(tmp_path, evaluation={"every": 3, "sample": "the cat"}), watchers=[seen.append])
    assert not caplog.records
    samples = [event["text"] for event in seen if event["event"] == "sample"]
    assert len(samples) == 2 and all(text.startswith("the cat") for text in samples)


def test_the_settings_of_training_do_not_stay(tmp_path):
    result = train(case(tmp_path, "seq2seq", "run", loss_chunk_size=8, objective__label_smoothing=0.2))
    head = ch.load(str(result.model)).model.language_head
    assert head.chunk == 0 and head.smoothing == 0.0


@pytest.mark.parametrize("more", [{"precision": "bf16"}, {"loss_chunk_size": 7},
                                  {"batch": {"tokens": 64, "length": 16}}, {"deterministic": True},
                                  {"optimizer": {"name": "muon", "lr": 0.01}}])  # fmt: skip
def test_ways_to_train(tmp_path, more):
    try:
        assert train(recipe(tmp_path, **more)).finished
    finally:
        torch.use_deterministic_algorithms(False)


def test_only_steps_are_compiled(tmp_path, monkeypatch):
    """Held-out data and samples have many shapes: making code for each would take longer than reading them."""
    from torch._dynamo.utils import counters

    real = torch.nn.Module.compile

    def traced(self, dynamic=None, options=None):  # not translated
        assert dynamic is False and options is None  # blocks have one shape; kernels are recorded on a GPU alone
        real(self, backend="eager", dynamic=dynamic)

    monkeypatch.setattr(torch.nn.Module, "compile", traced)
    counters.clear()
    made = {}

    def watch(event):
        made.setdefault(event["event"], []).append(counters["frames"]["total"])

    asked = recipe(tmp_path, compile=True, evaluation={"every": 2, "sample": "the cat"}, steps=4)
    train(asked | {"data": asked["data"] | {"test": str(tmp_path / "text.txt")}}, watchers=[watch])
    torch.compiler.reset()
    assert made["step"][0] > 0  # the first step was
    before = made["step"][1::2]  # told at the end of the step, when the evaluation is still to come
    assert made["evaluation"] == made["sample"] == before
    assert made["end"] == made["step"][-1:]  # nor the last look, at held-out and test data


def test_epochs(tmp_path):
    result = train(recipe(tmp_path, steps=None, epochs=0.5))
    assert result.finished and result.step >= 1


def test_what_stands_in_the_folder(tmp_path):
    result = train(case(tmp_path, "classification", "run", lora={"rank": 1}))
    names = {path.name for path in result.folder.iterdir()}
    assert names == {
        ".lock",
        "adapter",
        "checkpoints",
        "data",
        "log.jsonl",
        "model",
        "recipe.yaml",
        "result.json",
        "sources.json",
        "tokenizer",
    }
    facts = json.loads((result.folder / "result.json").read_text())
    assert facts["step"] == 3 and facts["units"] > 0 and facts["test"] == result.test


def test_lora_where_an_adapter_has_no_name(tmp_path):
    """XLNet's matrices are published in another form: the whole model is saved, which is said before the first step."""
    told = []
    asked = case(
        tmp_path, "classification", "run", "xlnet", lora={"rank": 1}, tokenizer={"kind": "unigram", "vocab_size": 160}
    )
    result = train(asked, watchers=[told.append])
    assert (result.model / "config.json").is_file() and not (result.folder / "adapter").exists()
    assert any("no adapter/" in event["text"] for event in told if event["event"] == "note")


def test_an_early_end_is_told(tmp_path):
    told = []
    asked = recipe(
        tmp_path, steps=20, optimizer__lr=1e-9, evaluation={"every": 1, "patience": 2}, schedule={"warmup": 50}
    )
    result = train(asked, watchers=[told.append])
    notes = [event["text"] for event in told if event["event"] == "note"]
    assert result.finished and result.step < 20
    assert "The rate rises to the end" in notes[0] and "Stopped early" in notes[1] and "patience=2" in notes[1]


def test_a_recipe_that_failed_before_training_is_forgotten(tmp_path):
    """Its folder holds no checkpoint, so another recipe may have it; not its tokenizer."""
    rows = [ROWS["labels"](n) for n in range(24)]
    (tmp_path / "bad.jsonl").write_text(
        "".join(json.dumps(row) + "\n" for row in [*rows, {"text": "x", "label": None}])
    )
    with pytest.raises(ValueError, match=r"bad.jsonl:25.*label"):
        train(
            case(
                tmp_path,
                "classification",
                "run",
                data={"train": str(tmp_path / "bad.jsonl"), "validation_fraction": 0.1},
            )
        )
    result = train(case(tmp_path, "classification", "run", tokenizer={"kind": "wordpiece", "vocab_size": 100}))
    assert len(ch.load(str(result.model)).tokenizer) <= 100


def test_a_folder_with_something_else(tmp_path):
    (tmp_path / "run/model").mkdir(parents=True)
    (tmp_path / "run/model/mine.txt").write_text("mine")
    with pytest.raises(CheckpointError, match=r"no recipe\.yaml"):
        train(recipe(tmp_path))
    assert (tmp_path / "run/model/mine.txt").read_text() == "mine"


def test_nothing_of_the_users_is_replaced(tmp_path):
    """A folder may hold a recipe and a tokenizer that no run has made."""
    own = tmp_path / "run/recipe.yaml"
    (tmp_path / "run/tokenizer").mkdir(parents=True)
    with pytest.raises(CheckpointError, match=r"holds tokenizer, but no recipe\.yaml"):
        train(recipe(tmp_path))
    own.write_text("# why I chose this\nobjective: causal-lm\n")
    with pytest.raises(CheckpointError, match=r"write over .*recipe\.yaml"):
        train(recipe(tmp_path))
    assert (tmp_path / "run/tokenizer").is_dir() and own.read_text().startswith("# why")


def test_a_tokenizer_alone_can_be_taken(tmp_path):
    """As an earlier run or `clearhead tokenize --train` has left it: without a config.json."""
    train_tokenizer(WORDS * 3, "bpe", 290).save(tmp_path / "mine")
    result = train(recipe(tmp_path, tokenizer={"start": str(tmp_path / "mine")}))
    assert ch.load(str(result.model)).tokenizer.get_vocab() == load_tokenizer(tmp_path / "mine").get_vocab()


def test_held_out_blocks_are_read_in_batches_of_their_own_size(tmp_path, monkeypatch):
    sizes = []
    measure = CausalLM.measure
    monkeypatch.setattr(
        CausalLM, "measure", lambda *args: sizes.append(len(args[2].inputs["labels"])) or measure(*args)
    )
    train(recipe(tmp_path, batch={"tokens": 64, "length": 16}, evaluation={"batch_size": 2}))
    assert max(sizes) == 2


def test_large_data_and_data_of_unknown_size_have_workers():
    assert [workers_for(SimpleNamespace(size=size), 2) for size in (10**8, None, 10)] == [2, 2, 0]


def test_kernels_are_loaded_before_the_first_step(tmp_path, monkeypatch):
    """Whether a sample was written before a step must not decide how its frozen layers round their sums."""
    loaded = []
    monkeypatch.setattr("clearhead.train.run.train.cpu_kernels.load", lambda: loaded.append(True))
    train(recipe(tmp_path), watchers=[lambda event: event["event"] == "begin" and loaded.append("begin")])
    assert loaded[:2] == [True, "begin"]


@pytest.mark.parametrize(
    ("name", "row", "objective", "words"),
    [
        ("classification", {"text": "a cat", "label": "good"}, {}, "All of the training data has the label 'good'"),
        ("classification", {"text": "a cat", "label": 2}, {"problem_type": "regression"}, "The number to learn is 2"),
        ("classification", {"text": "a cat", "label": []},
         {"problem_type": "multi_label_classification", "labels": ["x"]}, "No training example has any label"),
        ("tagging", {"tokens": ["a", "cat"], "tags": ["O", "O"]}, {}, "has the label 'O': there is nothing"),
        ("question-answering", {"question": "who ?", "context": "a cat", "answers": []}, {}, "holds an answer"),
    ],
)  # fmt: skip
def test_data_that_teaches_nothing_is_noted(tmp_path, name, row, objective, words):
    path = tmp_path / "same.jsonl"
    path.write_text((json.dumps(row) + "\n") * 12)
    events = []
    asked = case(tmp_path, name, "run", data={"train": str(path)}, evaluation={}, steps=1)
    asked["objective"] |= objective
    train(asked, watchers=[events.append])
    assert [words in event["text"] for event in events if event["event"] == "note"] == [True]


def test_a_label_that_never_occurs_is_noted(tmp_path):
    events = []
    asked = case(
        tmp_path,
        "classification",
        "run",
        objective={"name": "classification", "labels": ["bad", "good", "so so", "odd"]},
    )
    train(asked, watchers=[events.append])
    notes = [event["text"] for event in events if event["event"] == "note"]
    assert any("No training example has the label 'odd'" in note for note in notes)
