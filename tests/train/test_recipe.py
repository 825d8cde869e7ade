"""A recipe is read strictly: every mistake is one clear error, and what is written is what is read again."""

import copy
from dataclasses import asdict
from pathlib import Path

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from clearhead.errors import ClearheadError, ConfigError
from clearhead.train import Recipe, read_recipe, train, write_recipe
from tests.train.runs import recipe, write_text


@pytest.fixture
def said(tmp_path):
    return recipe(tmp_path)


def without(said: dict, *path: str) -> dict:
    said = copy.deepcopy(said)
    table = said
    for part in path[:-1]:
        table = table[part]
    del table[path[-1]]
    return said


@pytest.mark.parametrize(
    "settings, words",
    [
        (["optimzer.lr=1"], ["optimzer.lr=1: unknown key 'optimzer'", "Did you mean optimizer?"]),
        (["optimizer.lrr=1"], ["unknown key 'optimizer.lrr'", "Did you mean lr?"]),
        (["evaluation.patiance=1"], ["'evaluation.patiance'", "Did you mean patience?"]),
        (["lora.rnak=1"], ["'lora.rnak'", "Did you mean rank?"]),
        (["max_grad_norm=1"], ["unknown key 'max_grad_norm'", "Did you mean optimizer.max_grad_norm?"]),
        (["optimizer.steps=9"], ["unknown key 'optimizer.steps'", "Did you mean steps?"]),
        (["batch_size=8"], ["Did you mean batch.size or evaluation.batch_size?"]),
        (["optimizer={warmup: 5}"], ["unknown key 'optimizer.warmup'", "Did you mean schedule.warmup?"]),
        (["model.pooling=mean"], ["'model.pooling'"]),
        (["steps=many"], ["steps is 'many'", "a whole number"]),
        (["steps=1.5"], ["steps is 1.5", "a whole number"]),
        (["steps=true"], ["steps is True", "a whole number"]),
        (["steps=-3"], ["steps=-3: steps is -3", "at least 1"]),  # the setting is blamed, not the recipe
        (["seed=1", "log_every=0"], ["log_every=0: log_every is 0"]),
        (["out=x", "tokenizer={start: x, vocab_size: 99}"], ["tokenizer={start: x, vocab_size: 99}: tokenizer.vocab"]),
        (["out=x", "optimizer={lr: fast}"], ["optimizer={lr: fast}: optimizer.lr is 'fast'"]),
        (["data.workers=-1"], ["data.workers is -1"]),
        (["data.workers=5000"], ["from 0 to 256"]),
        (["steps=null", "epochs=1e9"], ["at most 10,000"]),
        (["schedule.final=100"], ["schedule.final is 100"]),
        (["tokenizer.vocab_size=1000000000"], ["from 1 to 10,000,000"]),
        (['data={train: "a\\0b"}'], ["NUL"]),
        (["optimizer.lr=fast"], ["optimizer.lr is 'fast'", "a number"]),
        (["optimizer.lr=0"], ["optimizer.lr is 0;", "above 0"]),
        (["optimizer.lr=.nan"], ["optimizer.lr is nan", "a number"]),
        (["optimizer.lr=.inf"], ["optimizer.lr is inf"]),
        (["optimizer=adamw"], ["optimizer is 'adamw'", "a table"]),
        (["optimizer.betas=[0.9]"], ["betas is [0.9]", "two numbers from 0 to below 1"]),
        (["optimizer.betas=[0.9, x]"], ["optimizer.betas[1] is 'x'", "a number"]),
        (["optimizer.betas=[0.9, 1.0]"], ["1.0]: optimizer.betas[1] is 1.0", "from 0 to below 1"]),
        (["optimizer.name=muo"], ["optimizer.name is 'muo'", "Did you mean muon?"]),
        (["optimizer.momentum=1"], ["momentum"]),
        (["optimizer.layer_decay=0"], ["layer_decay"]),
        (["compile=maybe"], ["compile is 'maybe'", "true or false"]),
        (["compile=1"], ["compile is 1", "true or false"]),
        (["precision=bf61"], ["Did you mean bf16?"]),
        (["tokenizer.kind=bpee"], ["Did you mean bpe?"]),
        (["tokenizer.special_tokens=<x>"], ["a list"]),
        (["tokenizer.special_tokens=[1]"], ["special_tokens[0] is 1", "text"]),
        (["epochs=2"], ["either steps or epochs"]),
        (["steps=null"], ["either steps or epochs"]),
        (["batch.tokens=100"], ["either batch.size or batch.tokens"]),
        (["batch.size=null"], ["either batch.size or batch.tokens"]),
        (["batch.gradient_accumulation_steps=5"], ["batch.gradient_accumulation_steps is 5", "a batch of 4"]),
        (["batch.length=0"], ["batch.length is 0"]),
        (["data.train=null"], ["data.train is missing"]),
        (["data.validation_fraction=1"], ["data.validation_fraction"]),
        (["data.valid=x.txt"], ["either data.valid or data.validation_fraction"]),
        (["data.validation_fraction=0", "evaluation.patience=2"], ["evaluation.patience needs held-out data"]),
        (["data.validation_fraction=0", "evaluation.sample=x"], ["evaluation.sample needs held-out data"]),
        (["model.start=x"], ["one of model.start", "and model.family"]),
        (["model.family=null"], ["one of model.start"]),
        (["model.family=null", "model.start=x", "model.preset=gpt2", "tokenizer.kind=null"], ["model.preset"]),
        (["model.family=null", "model.start=x"], ["tokenizer.kind"]),
        (["tokenizer.start=x"], ["either tokenizer.start"]),
        (["tokenizer.kind=null"], ["no tokenizer", "tokenizer.kind=bpe"]),
        (["tokenizer={start: x, special_tokens: [a]}"], ["tokenizer.special_tokens is for", "leave it out"]),
        (["tokenizer={start: x, vocab_size: 99}"], ["tokenizer.vocab_size is for"]),
        (["optimizer.matrix_lr=1"], ["Muon's", "optimizer.name=muon"]),
        (["optimizer.momentum=0.5"], ["Muon's"]),
        (["ema=1"], ["ema is 1"]),
        (["seed=-1"], ["seed is -1"]),
        (["loss_chunk_size=-1"], ["loss_chunk_size is -1"]),
        (["checkpoint.keep=0"], ["checkpoint.keep is 0"]),
        (["checkpoint.minutes=0"], ["checkpoint.minutes"]),
        (["lora.rank=0"], ["lora.rank is 0", "at least 1"]),
        (["lora.rank=2", "optimizer.freeze=encoder"], ["leave optimizer.freeze out"]),
        (["out="], ["out is None", "text"]),
        (["objective.name=null"], ["objective is missing"]),
        (["objective.name.deep=1"], ["has no keys of its own"]),
        (["steps"], ["'steps' is no setting"]),
        (["=3"], ["is no setting"]),
        (["optimizer.lr=[1"], ["not valid YAML"]),
    ],
)
def test_a_mistake_is_one_clear_error(said, settings, words):
    with pytest.raises(ConfigError) as caught:
        read_recipe(said, settings)
    for word in words:
        assert word in str(caught.value)
    assert "\n" not in str(caught.value)


def test_settings_on_top(said):
    before = copy.deepcopy(said)
    made = read_recipe(
        said,
        [
            "optimizer.lr=1e-4", "steps=1e3", "lora.rank=4", "objective.cross_documents=true",
            "optimizer.betas=[0.9, 5e-1]", "evaluation.sample=ROMEO: [no",
            "data.train=[a.txt, b.txt]", "model.config.n_embd=32", "out=no", "ema=0.9",
            "optimizer.max_grad_norm=null", "evaluation=null",
        ],
    )  # fmt: skip
    assert said == before  # the caller's table is left alone
    assert made.optimizer.lr == 1e-4 and made.steps == 1000 and type(made.steps) is int
    assert made.lora is not None and made.lora.rank == 4
    assert made.objective == {"name": "causal-lm", "cross_documents": True}
    assert made.optimizer.betas == [0.9, 0.5] and made.optimizer.max_grad_norm is None
    assert made.data.train == ["a.txt", "b.txt"] and made.model.config["n_embd"] == 32
    assert made.out == "no" and made.ema == 0.9
    assert read_recipe(said, ["evaluation.sample=ROMEO: [no"]).evaluation.sample == "ROMEO: [no"


YAML = """
objective: causal-lm
out: x
data: {train: t.txt}
tokenizer: {kind: bpe}
model: {family: gpt2}
batch: {size: 1}
steps: 1
"""


@pytest.mark.parametrize(
    "text, words",
    [
        ("steps: 2", ["line 9", "'steps' stands twice"]),
        ("optimizer: {lr: 1, lr: 2}", ["'lr' stands twice"]),
        ("optimizer:\n\tlr: 1", ["line 10", "not valid YAML"]),
        ("optimizer: {lr: 1", ["not valid YAML"]),
        ("no: 3", ["unknown key 'no'"]),
        ("evaluation: {sample: no}", ["evaluation.sample is False", "text"]),
        ("ema: &a [*a]", ["contains itself"]),
        ("seed: 2024-01-01", ["datetime", "a recipe holds"]),
        ("seed: 2024-99-01", ["cannot be read"]),
        ("? [a, b]\n: 3", ["not valid YAML"]),
        ("1: 2", ["unknown key '1'"]),
        ("- a", ["not valid YAML"]),
        ("names: " + "[" * 3000 + "]" * 3000, ["nested too deeply"]),
        ("a: &a [1,1,1,1,1,1,1,1,1,1]\n" + "".join(f"{b}: &{b} [{','.join([f'*{a}'] * 10)}]\n" for a, b in ("ab", "bc",
         "cd", "de", "ef", "fg", "gh")), ["1,000,000 values"]),
    ],
)  # fmt: skip
def test_pitfalls_of_yaml(tmp_path, text, words):
    path = tmp_path / "r.yaml"
    path.write_text(YAML + text)
    with pytest.raises(ConfigError) as caught:
        read_recipe(path)
    for word in words:
        assert word in str(caught.value), str(caught.value)


@pytest.mark.parametrize(
    ("setting", "says"),
    [("model.config=&a [*a]", "contains itself"), ("model.config=" + "[" * 3000, "nested too deeply|not valid YAML")],
)
def test_pitfalls_of_settings(tmp_path, setting, says):
    (tmp_path / "r.yaml").write_text(YAML)
    with pytest.raises(ConfigError, match=says) as caught:
        read_recipe(tmp_path / "r.yaml", [setting])
    assert len(str(caught.value)) < 300


def test_anchors_share_nothing(tmp_path):
    path = tmp_path / "r.yaml"
    text = "schedule: {options: &o {a: 1, b: 1}}\nevaluation: {test_options: {<<: *o, b: 2}}\noptimizer: {lr: 1e-4}\n"
    path.write_text(YAML + text)
    made = read_recipe(path, ["schedule.options.a=9"])
    assert made.schedule.options == {"a": 9, "b": 1} and made.evaluation.test_options == {"a": 1, "b": 2}
    assert made.optimizer.lr == 1e-4  # which YAML takes for a text
    assert read_recipe(path, ["schedule.options.a=9"]) == made


@pytest.mark.parametrize("content", [b"", b"# nothing", b"- a\n- b", b"word", b"\xff\xfe"])
def test_a_file_without_a_recipe(tmp_path, content):
    path = tmp_path / "r.yaml"
    path.write_bytes(content)
    with pytest.raises(ConfigError):
        read_recipe(path)


def test_no_file(tmp_path):
    with pytest.raises(ConfigError, match="There is no recipe"):
        read_recipe(tmp_path / "r.yaml")
    with pytest.raises(ConfigError, match="cannot be read"):
        read_recipe(tmp_path)


def test_only_plain_values(said):
    said["objective"] = {"name": "distillation", "teacher": object()}
    with pytest.raises(ConfigError, match=r"teacher.*a recipe holds text, numbers, lists and tables"):
        read_recipe(said)
    made = read_recipe(recipe(Path(said["out"]).parent) | {"out": Path("a") / "b"})
    assert made.out == str(Path("a") / "b")


plain = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**6), 10**6)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(min_size=1), inner, max_size=3),
    max_leaves=6,
)
numbers = st.floats(1e-12, 1e6)
made_recipes = st.fixed_dictionaries(
    {
        "objective": st.just("causal-lm") | st.fixed_dictionaries({"name": st.text(min_size=1), "option": plain}),
        "out": st.text(min_size=1).filter(str.strip),
        "data": st.fixed_dictionaries(
            {
                "train": st.text(min_size=1) | st.lists(st.text()),
                "columns": st.dictionaries(st.text(), plain, max_size=2),
            }
        ),
        "model": st.fixed_dictionaries(
            {"start": st.text(min_size=1), "config": st.dictionaries(st.text(), plain, max_size=2)}
        ),
        "batch": st.fixed_dictionaries({"size": st.integers(1, 9), "length": st.integers(1, 99)}),
        "optimizer": st.fixed_dictionaries({"lr": numbers, "eps": numbers, "max_grad_norm": st.none() | numbers}),
        "steps": st.integers(1, 10**9),
    },
    optional={"ema": st.floats(1e-6, 1, exclude_max=True), "seed": st.integers(0, 2**31), "lora": st.just({"rank": 3})},
)


@settings(max_examples=60, deadline=None)
@given(made_recipes)
def test_what_is_written_is_read_again(tmp_path_factory, said):
    try:
        made = read_recipe(said)
    except ConfigError:
        return  # a text that is a key of a table, and such
    path = tmp_path_factory.getbasetemp() / "round.yaml"
    path.write_text(write_recipe(made), encoding="utf-8")
    again = read_recipe(path)
    assert again == made and not again.differences(made)
    assert isinstance(asdict(again), dict)


@settings(max_examples=60, deadline=None)
@given(st.dictionaries(st.sampled_from(["objective", "out", "data", "model", "batch", "steps", "lora", "x"]), plain))
def test_any_table_gives_a_recipe_or_a_clear_error(said):
    try:
        assert isinstance(read_recipe(said), Recipe)
    except ConfigError as error:
        assert str(error)


def test_differences(said):
    made = read_recipe(said)
    assert not made.differences(read_recipe(said))
    free = [
        "out=b",
        "checkpoint.every=7",
        "log_every=3",
        "batch.gradient_accumulation_steps=2",
        "loss_chunk_size=64",
        "gradient_checkpointing=true",
    ]
    assert not made.differences(read_recipe(said, free))
    found = made.differences(read_recipe(said, ["optimizer.lr=0.5", "batch.size=8", "lora.rank=4"]))
    assert {line.partition(":")[0] for line in found} >= {"optimizer.lr", "batch.size", "lora.rank"}
    assert "optimizer.lr: 0.01, not 0.5" in found


@pytest.mark.parametrize(
    "settings, words",
    [
        (["objective=causal-ml"], ["no objective 'causal-ml'", "Did you mean causal-lm?"]),
        (["objective.cross_document=true"], ["no option 'cross_document'", "Did you mean cross_documents?"]),
        (["schedule.name=cosin"], ["no schedule 'cosin'", "Did you mean cosine?"]),
        (["schedule.options.wamup=3"], ["no option 'wamup'"]),
        (["model.family=gtp2"], ["does not know the family 'gtp2'", "Did you mean gpt2?"]),
        (["objective.cross_documents=maybe"], ["cross_documents is 'maybe'", "true or false"]),
        (["objective={name: seq2seq, label_smoothing: much}"], ["label_smoothing is 'much'", "a number"]),
        (["objective={name: denoising, noises: {token-masking: x}}"], ["noises.token-masking is 'x'", "a number"]),
        (["objective={name: classification, labels: 1}"], ["labels is 1", "a list of texts"]),
        (["objective=distillation"], ["cannot do without 'teacher'", "set objective.teacher"]),
        (["data.train={path: text.txt, split: test}"], ["split", "public data set"]),
        (["objective={name: seq2seq, source_tokenizer: 1}"], ["source_tokenizer is 1", "text"]),
        (["model.preset=gpt2-huge"], ["no preset 'gpt2-huge'"]),
        (["model.config.n_emb=3"], ["n_emb", "Did you mean n_embd"]),
        (["model.config.hiden_size=3"], ["Did you mean hidden_size"]),
        (["model.config.n_head=3"], ["does not divide"]),
        (["model.task=causal"], ["no head for the task 'causal'"]),
        (["objective=masked-lm", "model.family=t5", "model.config={d_model: 8}"], ["no head for the task 'masked-lm'"]),
        (["batch.length=99"], ["batch.length is 99", "24 positions", "n_positions"]),
        (["model.config.vocab_size=100"], ["290 tokens", "rows for 100"]),
        (["data.train=missing.txt"], ["missing.txt does not exist"]),
        (["data.train={path: text.txt, formt: csv}"], ["no option 'formt'", "Did you mean format?"]),
        (["objective=classification", "data.format=jsonl"], []),
        (["objective=seq2seq", "model.family=bart", "model.config={d_model: 16, encoder_layers: 1, decoder_layers: 1}"],
         ["no column 'source'"]),
        (["optimizer.freeze=encodr"], ["'encodr' cannot be frozen", "Did you mean encoder?"]),
        (["optimizer.freeze=all-but-head"], ["nothing is left to learn"]),
        (["optimizer.name=muon", "lora.rank=2"], ["use adamw"]),
        (["lora.targets=[nothing]"], ["No matrix is called nothing"]),
        (["model.family=bert", "objective=masked-lm", "evaluation.sample=x", "model.config={hidden_size: 8, "
          "num_hidden_layers: 1, num_attention_heads: 1, intermediate_size: 8}"], ["cannot write text"]),
        (["device=gpu"], ["device"]),
        (["data.train=~nobody-here/x.txt"], ["cannot be used"]),
        (["data.train=" + "x" * 300], ["cannot be used", "too long"]),
        (["data.train=**.txt"], ["no pattern of files"]),
        (["data.train={path: text.txt, encoding: base64}"], ["not an encoding"]),
        (["objective={name: classification, labels: [a, a]}", "data.train=labels.jsonl"], ["'a' stands twice"]),
        (["model={start: " + "x" * 300 + "}", "tokenizer=null"], ["too long"]),
        (["device=meta"], ["'meta' cannot be used", "no numbers"]),
        (["objective={name: masked-lm, mlm_probability: 5}", "model.family=bert", "model.config={hidden_size: 8, "
          "num_hidden_layers: 1, num_attention_heads: 1, intermediate_size: 8}"], ["mlm_probability is 5"]),
        (["objective={name: gpt-classification, lm: -1}", "data.train=labels.jsonl"], ["lm is -1", "0 or more"]),
        (["tokenizer.vocab_size=100"], ["100"]),
        (["model.family=null", "model.start=nowhere/at-all", "tokenizer.kind=null"], []),
        (["tokenizer.kind=null", "tokenizer.start=nowhere"], []),
    ],
)  # fmt: skip
def test_nothing_is_written_for_a_bad_recipe(said, tmp_path, monkeypatch, settings, words):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "labels.jsonl").write_text('{"text": "a cat", "label": "x"}\n' * 30)
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(ClearheadError) as caught:
        train(said, settings)
    for word in words:
        assert word in str(caught.value), str(caught.value)
    assert sorted(tmp_path.rglob("*")) == before


def test_columns_of_every_part_are_looked_at_first(said, tmp_path):
    lines = '{"source": "a cat", "target": "ein hund"}\n' * 30
    (tmp_path / "good.jsonl").write_text(lines)
    (tmp_path / "bad.jsonl").write_text('{"source": "a cat", "targt": "ein hund"}\n')
    said["objective"] = "prompted-lm"
    said["data"] = {"train": str(tmp_path / "good.jsonl"), "valid": str(tmp_path / "good.jsonl")}
    for part in ("train", "valid", "test"):
        with pytest.raises(ClearheadError, match=r"bad.jsonl:1 has no column 'target'. Did you mean targt\?"):
            train(said, [f"data.{part}={tmp_path / 'bad.jsonl'}"])
    assert not Path(said["out"]).exists()


def test_a_metric_that_is_not_measured(said):
    with pytest.raises(ConfigError, match=r"'perplexty'.*Did you mean perplexity\?"):
        train(said, ["evaluation.metric=perplexty"])
    assert not (Path(said["out"]) / "checkpoints").exists()
    assert train(said, ["evaluation.metric=perplexity"]).finished  # the wrong recipe is not held against the folder


def test_a_sample_without_room(said):
    with pytest.raises(ConfigError, match="nothing can be written after it"):
        train(said, [f"evaluation.sample={'the cat sat ' * 30}"])


def test_valid_shares_files_with_train(said, tmp_path):
    seen = []
    other = write_text(tmp_path / "other.txt", 20, seed=1)
    said["data"] = {"train": [said["data"]["train"], str(other)], "valid": str(other), "documents": "lines"}
    train(said, watchers=[seen.append])
    assert any(e["event"] == "note" and "learnt by heart" in e["text"] and "other.txt" in e["text"] for e in seen)


def test_a_pattern_of_files_is_no_alias(said):
    assert read_recipe(said, ["data.train=*.txt"]).data.train == "*.txt"


def test_a_recipe_object_and_settings(said):
    made = read_recipe(yaml.safe_load(write_recipe(read_recipe(said))))
    assert train(made, ["steps=2"]).step == 2
