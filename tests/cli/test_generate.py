"""clearhead generate and clearhead next, as a user types them: options, mistakes, interrupts, and line by line."""

import json
import os
import re
import signal
import subprocess
import sys

import pytest
from typer.testing import CliRunner

import clearhead as ch
from clearhead.cli import app
from clearhead.cli.interactive import COMMANDS, SETTABLE, InteractiveWriter, joined
from clearhead.errors import InputError
from clearhead.generate import Options
from tests.cli import with_model
from tests.cli.test_cli import run
from tests.tiny import shake, tiny_translator

PROMPT = "The robot said"


@pytest.fixture(scope="module")
def gpt():
    return ch.load("random-gpt2")


@pytest.fixture(scope="module")
def translator(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models") / "translator"
    tiny_translator().save(folder)
    return str(folder)


def inside(*words, typed="", columns=100):
    """In this process: quicker. Errors a user can cause come out as they are."""
    result = CliRunner().invoke(app, with_model(words), input=typed, env={"COLUMNS": str(columns)})
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def process(*words, **env):
    return subprocess.Popen(
        [sys.executable, "-u", "-m", "clearhead", *with_model(words)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env={**os.environ, "COLUMNS": "100", **env},
    )  # fmt: skip


# ---- generate


@pytest.mark.parametrize(
    ("words", "options"),
    [
        ("", {}),
        ("--temperature 0.7 --seed 3", {"temperature": 0.7, "seed": 3}),
        ("--top-k 5 --top-p 0.9 --seed 2", {"top_k": 5, "top_p": 0.9, "seed": 2}),
        ("--min-p 0.9 --seed 2", {"min_p": 0.9, "seed": 2}),
        ("--typical-p 0.5 --seed 2", {"typical_p": 0.5, "seed": 2}),
        ("--repetition-penalty 1.5", {"repetition_penalty": 1.5}),
        ("--presence-penalty 2", {"presence_penalty": 2.0}),
        ("--frequency-penalty 0.4", {"frequency_penalty": 0.4}),
        ("--no-repeat-ngram-size 2", {"no_repeat_ngram_size": 2}),
        ("--num-beams 3 --length-penalty 2", {"num_beams": 3, "length_penalty": 2.0}),
        (
            "--num-beams 4 --num-beam-groups 2 --diversity-penalty 0.5",
            {"num_beams": 4, "num_beam_groups": 2, "diversity_penalty": 0.5},
        ),
        ("--penalty-alpha 0.6 --top-k 4", {"penalty_alpha": 0.6, "top_k": 4}),
        ("--stop o", {"stop_strings": ["o"]}),
        ("--stop zz --stop rob", {"stop_strings": ["zz", "rob"]}),
        ("--choice yes --choice no", {"choices": ["yes", "no"]}),
        ("--regex [0-9]{3}", {"regex": "[0-9]{3}"}),
        ("--min-new-tokens 9", {"min_new_tokens": 9}),
        ("--prompt-lookup 3", {"prompt_lookup_num_tokens": 3}),
    ],
)
def test_every_option_does_what_it_does_in_python(gpt, words, options):
    want = gpt.write(PROMPT, max_new_tokens=12, **options)[0]
    assert inside("generate", PROMPT, "-n", "12", *words.split()).stdout == want.text + "\n"
    data = json.loads(inside("generate", PROMPT, "-n", "12", "--json", *words.split()).stdout)
    answer = data["answers"][0]
    for name in ("text", "new_text", "token_ids", "tokens", "finish_reason"):
        assert answer[name] == getattr(want, name), name
    assert answer["log_probs"] == pytest.approx(want.log_probs, abs=1e-4)
    assert answer["score"] == (want.score and pytest.approx(want.score))
    for name, value in options.items():
        assert data["options"][name] == value


def test_json_says_all(gpt):
    words = ["generate", PROMPT, "-n", "6", "--top-k", "9", "--seed", "4", "--num-return-sequences", "3", "--json"]
    data = json.loads(inside(*words).stdout)
    want = gpt.write(PROMPT, max_new_tokens=6, top_k=9, seed=4, num_return_sequences=3)
    assert [a["text"] for a in data["answers"]] == [w.text for w in want]
    assert len({a["text"] for a in data["answers"]}) == 3
    assert (data["model"], data["prompt"], data["new_tokens"]) == ("random-gpt2", PROMPT, 18)
    assert data["options"] == {"max_new_tokens": 6, "top_k": 9, "seed": 4, "num_return_sequences": 3}
    assert data["tokens_per_second"] == pytest.approx(18 / data["seconds"], rel=0.1)


def test_answers_that_end_at_different_places(gpt):
    words = ["--num-return-sequences", "6", "--seed", "5", "--stop", "e", "--stop", "t", "-n", "30"]
    answers = json.loads(inside("generate", PROMPT, *words, "--json").stdout)["answers"]
    want = gpt.write(PROMPT, max_new_tokens=30, seed=5, num_return_sequences=6, stop_strings=["e", "t"])
    assert len({len(w.token_ids) for w in want}) > 2
    for name in ("text", "token_ids", "finish_reason"):
        assert [a[name] for a in answers] == [getattr(w, name) for w in want]


def test_several_answers_are_numbered():
    lines = inside("generate", PROMPT, "-n", "3", "--num-beams", "3", "--num-return-sequences", "2").stdout.splitlines()
    assert lines[0].startswith("[1] The robot said")
    assert any(line.startswith("[2] The robot said") for line in lines)


def test_a_schema_in_words_or_in_a_file(tmp_path):
    schema = {"type": "object", "properties": {"ok": {"type": "boolean"}}, "required": ["ok"]}
    (tmp_path / "schema.json").write_text(json.dumps(schema), encoding="utf-8")
    for given in (json.dumps(schema), str(tmp_path / "schema.json")):
        answer = inside("generate", PROMPT, "--json-schema", given).stdout.removeprefix(PROMPT)
        assert set(json.loads(answer)) == {"ok"}


def test_an_assistant_and_rounded_weights(gpt):
    want = gpt.generate(PROMPT, max_new_tokens=15)
    done = inside("generate", PROMPT, "-n", "15", "--assistant", "random-gpt2", "--speed")
    assert done.stdout == want + "\n"
    calls = int(re.search(r"the model ran (\d+) times", " ".join(done.stderr.split()))[1])
    assert calls < 8  # the assistant is the model, so nearly every token it proposes is right
    rounded = ch.load("random-gpt2", quantize="int8").generate(PROMPT, max_new_tokens=15)
    done = inside("generate", PROMPT, "-n", "15", "--quantize", "int8", "--speed")
    assert done.stdout == rounded + "\n"
    assert "int8" in done.stderr


def test_speed_says_what_ran():
    said = " ".join(
        inside("generate", PROMPT, "-n", "7", "--dtype", "bfloat16", "--top-k", "3", "--speed").stderr.split()
    )
    for word in ("7 tokens in", "tokens/s", "3 read", "GPT-2", "242,048", "bfloat16", "CPU", "drawn at random"):
        assert word in said
    said = " ".join(inside("generate", PROMPT, "-n", "7", "--num-beams", "3", "--speed").stderr.split())
    assert "7 tokens in" in said
    assert "3 beams" in said


def test_an_encoder_decoder_answers(translator):
    want = ch.load(translator).generate("the cat", max_new_tokens=8)
    assert inside("generate", "the cat", "-m", translator, "-n", "8").stdout == want + "\n"
    data = json.loads(inside("generate", "the cat", "-m", translator, "-n", "8", "--json").stdout)
    assert data["answers"][0]["text"] == data["answers"][0]["new_text"] == want


def test_the_models_own_generation_options_count(tmp_path, gpt):
    gpt.save(tmp_path / "m")
    said = {"num_beams": 3, "num_return_sequences": 2, "max_new_tokens": 4}
    (tmp_path / "m" / "generation_config.json").write_text(json.dumps(said))
    data = json.loads(inside("generate", PROMPT, "-m", str(tmp_path / "m"), "--json").stdout)
    assert data["options"].items() >= said.items()
    assert len(data["answers"]) == 2


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--num-beams", "3", "--penalty-alpha", "0.5", "--top-k", "4"], "contrastive search"),
        (["--top-k", "-1"], "top_k"),
        (["-n", "3", "--min-new-tokens", "4"], "above max_new_tokens"),
        (["--num-return-sequences", "2"], "Greedy decoding has one answer"),
        (["--prompt-lookup", "2", "--num-beams", "2"], "Speculative decoding"),
        (["--prompt-lookup", "2", "--assistant", "x"], "not both"),
        (["--choice", "a", "--regex", "b"], "--choice or --regex"),
        (["--choice", ""], "not empty"),
        (["--regex", "(a"], "regular expression"),
        (["--json-schema", "nothere.json"], "There is no file nothere.json"),
        (["--json-schema", "."], "cannot be read"),
        (["--json-schema", '{"type": '], "not valid JSON"),
        (["--json-schema", '{"type": "text"}'], "type"),
        (["--stop", ""], "stop_strings"),
        (["--interactive", "--json"], "--interactive"),
        (["--quantize", "int9", "-m", "random-gpt2"], "Did you mean int8"),
        (["--dtype", "int3", "-m", "random-gpt2"], "dtype"),
    ],
)
def test_options_are_checked_before_anything_is_loaded(words, says, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    model = [] if "-m" in words else ["-m", "./nowhere"]
    with pytest.raises(InputError, match=re.escape(says)):
        inside("generate", PROMPT, *model, *words)
    assert list(tmp_path.iterdir()) == []


def test_the_newline_that_closes_a_piped_prompt_is_no_part_of_it():
    asked = ["generate", "-", "-n", "3", "--json"]
    piped, plain = (CliRunner().invoke(app, asked, input=text) for text in ("The robot\n", "The robot"))
    assert json.loads(piped.stdout)["prompt"] == json.loads(plain.stdout)["prompt"] == "The robot"


def test_prompts_that_cannot_be_continued():
    with pytest.raises(InputError, match="empty"):
        inside("generate", "  ", "-m", "./nowhere")
    with pytest.raises(InputError, match="empty"):
        inside("generate", "-", "-m", "./nowhere", typed="\n")
    with pytest.raises(InputError, match="256 positions"):
        inside("generate", "cat " * 400)
    with pytest.raises(InputError, match="knows no languages"):
        inside("generate", PROMPT, "--tgt-lang", "de")


def test_a_users_mistake_is_one_message_and_no_trace():
    wrong = run("generate", PROMPT, "--regex", "(a")
    assert wrong.returncode == 1
    assert wrong.stderr.startswith("Error:")
    assert len(wrong.stderr.splitlines()) <= 2
    wrong = run("generate", PROMPT, "--temprature", "1")
    assert wrong.returncode == 2
    assert "--temperature" in wrong.stderr


def slow_model(monkeypatch, gpt, after):
    """The shipped model, with a Ctrl-C when it has been asked so many times."""
    count = 0
    forward = type(gpt.model).forward

    def interrupted(self, *args, **options):
        nonlocal count
        count += 1
        if count == after:
            raise KeyboardInterrupt
        return forward(self, *args, **options)

    monkeypatch.setattr(type(gpt.model), "forward", interrupted)


def test_an_interrupt_keeps_what_was_written(gpt, monkeypatch):
    whole = gpt.write(PROMPT, max_new_tokens=12)[0]
    slow_model(monkeypatch, gpt, after=6)
    done = inside("generate", PROMPT, "-n", "12")
    assert done.exit_code == 130
    assert "Stopped" in done.stderr
    assert done.stdout == PROMPT + "".join(whole.tokens[:5]) + "\n"


@pytest.mark.parametrize("copies", [1, 2])
def test_an_interrupted_answer_in_json(gpt, monkeypatch, copies):
    options = {"top_k": 9, "seed": 1, "num_return_sequences": copies}
    whole = gpt.write(PROMPT, max_new_tokens=12, **options)
    slow_model(monkeypatch, gpt, after=6)
    words = ["--top-k", "9", "--seed", "1", "--num-return-sequences", str(copies)]
    done = inside("generate", PROMPT, "-n", "12", *words, "--json")
    assert done.exit_code == 130
    for answer, want in zip(json.loads(done.stdout)["answers"], whole, strict=True):
        assert answer["token_ids"] == want.token_ids[:5]
        assert answer["log_probs"] == pytest.approx(want.log_probs[:5], abs=1e-4)
        assert answer["finish_reason"] == "interrupted"


def test_an_interrupted_search_has_no_answer(gpt, monkeypatch):
    slow_model(monkeypatch, gpt, after=4)
    done = inside("generate", PROMPT, "-n", "12", "--num-beams", "3", "--json")
    assert done.exit_code == 130
    assert json.loads(done.stdout)["answers"] == []


@pytest.mark.skipif(sys.platform == "win32", reason="signals")
def test_a_real_interrupt_prints_whole_json():
    running = process("generate", PROMPT, "-n", "250", "--seed", "1", "--json")
    said = running.stderr.readline()  # it is loaded, and begins to write
    running.send_signal(signal.SIGINT)
    stdout, rest = running.communicate(timeout=60)
    assert "Traceback" not in said + rest
    assert running.returncode in (0, 130, -signal.SIGINT)  # the last: it had written all, and was leaving
    assert not stdout or json.loads(stdout)["answers"][0]["text"].startswith(PROMPT)


# ---- generate --interactive


def talk(*lines, words=()):
    return inside("generate", "--interactive", "-n", "5", *words, typed="".join(f"{line}\n" for line in lines))


def test_the_text_grows(gpt):
    done = talk("The robot", "", "and the cat", "/text")
    text = gpt.generate("The robot", max_new_tokens=5)
    text = gpt.generate(text, max_new_tokens=5)
    text = gpt.generate(text + " and the cat", max_new_tokens=5)
    assert done.exit_code == 0
    assert done.stdout.endswith(f"\n{text}\n")
    assert "›" not in done.stdout


def test_a_prompt_is_the_first_line(gpt):
    done = inside("generate", "The robot", "-i", "-n", "5", typed="/text\n/quit\nnever read\n")
    whole = gpt.generate("The robot", max_new_tokens=5)
    assert done.stdout == whole.removeprefix("The robot").removeprefix(" ") + f"\n{whole}\n"


def test_undo_and_reset():
    done = talk("The robot", "A cat", "/undo", "/text", "/undo", "/text", "/undo", "The", "/reset", "/text", "")
    assert done.exit_code == 0
    assert "nothing to take back" in done.stderr
    assert "no text to go on" in done.stderr
    once = talk("The robot", "/text").stdout.splitlines()[-1]
    assert once in done.stdout.splitlines()


def test_set_changes_what_follows(gpt):
    done = talk(
        "/set temperature 0.8", "/set --top-k 7", "/set seed 3", "The robot", "/text", "/set", "/set seed off", "/set"
    )
    whole = gpt.generate("The robot", max_new_tokens=5, temperature=0.8, top_k=7, seed=3)
    assert whole in done.stdout
    shown = done.stdout.split(whole)[-1]
    assert "temperature 0.8" in shown
    assert shown.count("seed") == 1


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("/set temprature 2", "Did you mean temperature"),
        ("/set temperature", "needs a value"),
        ("/set temperature hot", "temperature is 'hot'"),
        ("/set top_k -4", "top_k is -4"),
        ("/set zzz 4", "It knows max_new_tokens"),
        ("/rest", "Did you mean /reset"),
        ("/undo", "nothing to take back"),
        ("", "no text to go on from"),
        ("cat " * 400, "/reset begins a new text"),
    ],
)
def test_a_mistake_is_said_and_changes_nothing(gpt, line, says):
    done = talk(line, "The robot", "/text")
    assert done.exit_code == 0
    assert says in " ".join(done.stderr.split())
    assert done.stdout.endswith(gpt.generate("The robot", max_new_tokens=5) + "\n")


def test_full_positions_are_said():
    done = talk("cat " * 250, words=["-n", "50"])
    assert "positions are full" in " ".join(done.stderr.split())
    assert "/reset" in done.stderr


def test_help_lists_the_commands():
    shown = talk("/help").stdout
    assert all(command in shown for command in COMMANDS)


def test_set_knows_only_real_options():
    known = Options.__dataclass_fields__
    assert all(name in known for name in SETTABLE)


def test_what_was_read_is_not_read_again(gpt, monkeypatch, capsys):
    lengths = []
    forward = type(gpt.model).forward
    monkeypatch.setattr(
        type(gpt.model), "forward", lambda self, ids, **rest: lengths.append(ids.shape[1]) or forward(self, ids, **rest)
    )
    desk = InteractiveWriter(gpt, {"max_new_tokens": 3})
    desk.handle("Once upon a time there was a little girl")
    first = lengths[0]
    lengths.clear()
    desk.handle("")
    assert lengths[0] < first / 2
    assert desk.text.startswith("Once upon a time there was a little girl")


def test_an_interrupt_in_the_middle_of_a_layer_does_no_harm(monkeypatch, capsys):
    """A line is being read, some layers remember it and some do not yet: none of that must be used again."""
    gpt = ch.load("random-gpt2")
    shake(gpt.model)
    desk = InteractiveWriter(gpt, {"max_new_tokens": 4})
    desk.handle(PROMPT)
    block = type(gpt.model.stack.layers[0])
    forward, count = block.forward, 0

    def interrupted(self, *args, **options):
        nonlocal count
        count += 1
        if count == 3:
            raise KeyboardInterrupt
        return forward(self, *args, **options)

    monkeypatch.setattr(block, "forward", interrupted)
    text = desk.text + " and it was a house in the wood"
    desk.handle(" and it was a house in the wood")
    assert desk.text == text
    desk.handle("")
    assert desk.text == gpt.generate(text, max_new_tokens=4)


def test_an_encoder_decoder_answers_each_line(translator):
    done = inside("generate", "-i", "-m", translator, "-n", "8", typed="the cat\nthe mat\n")
    pipe = ch.load(translator)
    want = [pipe.generate(line, max_new_tokens=8) for line in ("the cat", "the mat")]
    assert done.stdout == "".join(f"{text.removeprefix(' ')}\n" for text in want)


@pytest.mark.parametrize(
    ("text", "line", "both"),
    [
        ("", "The", "The"),
        ("The", "cat", "The cat"),
        ("The ", "cat", "The cat"),
        ("The", " cat", "The cat"),
        ("The", ", said", "The, said"),
        ("机器人", "说", "机器人说"),
        ("The", "", "The"),
    ],
)
def test_joined(text, line, both):
    assert joined(text, line) == both


# ---- next


def test_next_draws_the_likeliest(gpt):
    found = ch.explain.next_token(gpt, PROMPT, top_k=4)
    for columns in (100, 40):
        lines = inside("next", PROMPT, "--top-k", "4", columns=columns).stdout.splitlines()
        assert max(map(len, lines)) <= columns
        assert lines[0].startswith("random-gpt2")
        text = next(n for n, line in enumerate(lines) if line.startswith(PROMPT))
        assert text in (1, 2)  # after the heading, which may take two lines
        rows = lines[text + 1 : text + 5]
        bars = [row.count("█") for row in rows]
        assert [row.split()[0] for row in rows] == ["1", "2", "3", "4"]
        assert all(f"{c.probability:.2%}" in row for row, c in zip(rows, found.candidates, strict=True))
        assert bars == sorted(bars, reverse=True)
        assert bars[2] / bars[0] == pytest.approx(
            found.candidates[2].probability / found.candidates[0].probability, abs=0.1
        )


def test_next_goes_on_by_what_is_typed(gpt):
    second = ch.explain.next_token(gpt, PROMPT).candidates[1].token_id
    done = inside("next", PROMPT, "--top-k", "3", typed="2\n the cat\nu\n\n99\n=7\nq\n1\n")
    assert done.exit_code == 0
    texts = [line.rstrip("▁") for line in done.stdout.splitlines() if line.endswith("▁")]
    one = gpt.tokenizer.decode([*gpt.tokenizer.encode(PROMPT), second])
    assert texts[:4] == [PROMPT, one, one + " the cat", one]
    assert texts[4].startswith(one)
    assert len(texts) == 6
    assert texts[5] == texts[4] + "7"
    assert "type =99" in done.stderr


def test_next_ends_without_input():
    done = inside("next", PROMPT)
    assert done.stdout.count("▁") == 1
    assert "nothing to take back" in inside("next", PROMPT, typed="u\n").stderr


def test_next_in_steps_and_json(gpt):
    want = gpt.generate(PROMPT, max_new_tokens=3)
    done = inside("next", PROMPT, "--steps", "3", "--top-k", "2", typed="1\n1\n1\n1\n")
    assert done.stdout.splitlines()[-1] == want
    assert done.stdout.count("▁") == 3
    data = json.loads(inside("next", PROMPT, "--steps", "3", "--top-k", "2", "--json").stdout)
    assert data["text"] == want
    assert [len(step["candidates"]) for step in data["steps"]] == [2, 2, 2]
    one = json.loads(inside("next", PROMPT, "--json").stdout)
    assert one == ch.explain.next_token(gpt, PROMPT).to_dict()


def test_next_of_an_encoder_decoder(translator):
    done = inside("next", "the cat", "-m", translator, "--target", "un", "--top-k", "3")
    assert "the cat → un▁" in done.stdout
    found = ch.explain.next_token(ch.load(translator), "the cat", target="un")
    data = json.loads(inside("next", "the cat", "-m", translator, "--target", "un", "--json").stdout)
    assert data["candidates"][0]["token_id"] == found.candidates[0].token_id


def test_next_full_and_wrong():
    done = inside("next", "cat " * 150, "--steps", "200", "--top-k", "1")
    assert "256 positions" in " ".join(done.stderr.split())
    assert done.exit_code == 0
    with pytest.raises(InputError, match="empty"):
        inside("next", "", "-m", "./nowhere")
    with pytest.raises(InputError, match="target is for"):
        inside("next", "a", "--target", "b")


def test_no_colour_where_none_is_wanted():
    for words in (["next", PROMPT], ["generate", PROMPT, "-n", "3"]):
        assert "\x1b" not in inside(*words).output


def test_the_terminal_has_colour_and_pale_prompts():
    """Through a pseudo-terminal: ask, take one, leave."""
    pty = pytest.importorskip("pty")
    pid, fd = pty.fork()
    if pid == 0:
        os.environ |= {"TERM": "xterm-256color", "COLUMNS": "60", "NO_COLOR": ""}
        os.execv(sys.executable, [sys.executable, "-m", "clearhead", "next", PROMPT, "--top-k", "3"])
    seen = b""

    def until(mark):
        nonlocal seen
        while mark not in seen:
            seen += os.read(fd, 4096)

    until("› ".encode())
    os.write(fd, b"2\n")
    seen = b""
    until("› ".encode())
    assert b"\x1b[" in seen
    os.write(fd, b"q\n")
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    os.close(fd)
