"""The picture of a training run is a function of its events."""

import io
import math

import pytest
from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from clearhead.views.training import amount, curve, draw, duration, history_of, line_of, number, power, roughly

BEGIN = {
    "event": "begin", "step": 0, "steps": 1000, "out": "runs/mine", "objective": "causal-lm", "family": "GPT-2",
    "parameters": 124_439_808, "examples": 5000, "steps_per_epoch": 400, "device": "cpu", "devices": 1,
    "precision": "fp32", "unit": "token",
}  # fmt: skip


def step(n, loss, **more):
    return {
        "event": "step", "step": n, "steps": 1000, "loss": loss, "lr": 3e-4, "grad_norm": 0.8, "units": n * 4096,
        "units_per_second": 12_345.6, "seconds": n * 0.5, "eta": (1000 - n) * 0.5, "mfu": 0.25, **more,
    }  # fmt: skip


def evaluation(n, loss, best=True):
    return {"event": "evaluation", "step": n, "metrics": {"loss": loss, "perplexity": math.exp(loss)}, "best": best}


def run(until):
    events = [BEGIN]
    for n in range(10, until + 1, 10):
        events.append(step(n, 2 + 5 * math.exp(-n / 100)))
        if n % 100 == 0:
            events.append(evaluation(n, 2.2 + 5 * math.exp(-n / 100)))
            events.append({"event": "sample", "step": n, "text": "Once upon a time\nthere was 一只猫 " * 20})
    return events


def shown(events, width, height=45, **more):
    console = Console(width=width, height=height, file=io.StringIO(), color_system=None)
    console.print(draw(history_of(events), width, height, **more))
    return console.file.getvalue().splitlines()


def test_the_history_of_a_run_that_went_on():
    first = [BEGIN, step(10, 5.0), evaluation(10, 5.1), step(20, 4.0), step(30, 3.9), evaluation(30, 4.0)]
    again = [{**BEGIN, "step": 20}, step(30, 3.0), evaluation(30, 6.0, best=False)]
    history = history_of(first + again)
    assert history.training == [(10, 5.0), (20, 4.0), (30, 3.0)]  # what was done anew replaces what was done
    assert history.held_out == [(10, 5.1), (30, 6.0)]
    assert history.evaluation["metrics"]["loss"] == 6.0
    assert history.best["metrics"]["loss"] == 4.0
    assert not history.end
    assert history_of([*first, {"event": "end", "step": 30, "finished": True}]).end["finished"]
    assert not history_of([*first, {"event": "end", "step": 30, "finished": False}, BEGIN]).end  # it goes on


def test_a_long_run_keeps_its_shape_in_few_points():
    history = history_of([BEGIN, *(step(n, 1000.0 - n / 10) for n in range(1, 9_001))])
    assert len(history.training) <= 2048
    assert history.training[-1] == (9000, 100.0)  # the newest as it was
    assert all(abs(loss - (1000 - n / 10)) < 1 for n, loss in history.training)


@pytest.mark.parametrize("width", [60, 80, 120, 200])
@pytest.mark.parametrize("until", [0, 10, 90, 400, 1000])
def test_it_fits(width, until):
    lines = shown(run(until), width, 45, footer=Text("Ctrl-C stops; the same command goes on."))
    assert max(map(cell_len, lines)) <= width
    assert len(lines) <= 45
    text = "\n".join(lines)
    assert "GPT-2" in text and "124.4 M parameters" in text and "causal-lm" in text and "Ctrl-C stops" in text
    if until:
        for word in ("learning rate", "3.0e-4", "gradient", "12,346", "25.0%", f"step {until:,} of 1,000", "training"):
            assert word in text, word
    if until >= 100:
        for word in ("held out", "newest", "best", "perplexity", "The model writes, at step", "Once upon a time"):
            assert word in text, word


def test_the_height_does_not_jump():
    """Once an evaluation and a sample are there, a new event moves nothing."""
    heights = {len(shown(run(n), 100)) for n in range(100, 1000, 30)}
    assert len(heights) == 1


@pytest.mark.parametrize("height", [24, 30, 60])
def test_a_low_terminal_gets_a_low_curve(height):
    lines = shown(run(500), 80, height, footer=Text("a last line"))
    assert len(lines) <= height
    text = "\n".join(lines)
    assert "perplexity" in text and "learning rate" in text and "a last line" in text
    assert ("The model writes" in text) == (height > 24)
    assert sum("│" in line or "┤" in line for line in lines) == {24: 5, 30: 4, 60: 12}[height]


def plot(training, held_out=(), width=60, height=8):
    """The rows of the frame, without labels."""
    lines = [line.plain for line in curve(list(training), list(held_out), width, height)]
    rows = [line for line in lines if "│" in line or "┤" in line]
    assert len(rows) == height
    return [line[max(line.find("│"), line.find("┤")) + 1 :] for line in rows]


def test_the_curve_falls_where_the_loss_falls():
    rows = plot([(n, 10 - n / 10) for n in range(0, 101)])
    dots = [(x, y) for y, row in enumerate(rows) for x, char in enumerate(row) if char != " "]
    assert dots[0][0] <= 1 and dots[0][1] == 0  # begins at the upper left
    assert max(dots) == (len(rows[0]) - 1, 7)  # and ends at the lower right
    by_column = dict(sorted(dots))
    assert list(by_column.values()) == sorted(by_column.values())
    assert len(by_column) == len(rows[0])  # a line without a gap


def test_marks_stand_where_they_were_measured():
    training = [(n, 4.0 if n else 8.0) for n in range(0, 101, 10)]
    rows = plot(training, [(0, 8.0), (50, 6.0), (100, 4.0)])
    marks = [(x, y) for y, row in enumerate(rows) for x, char in enumerate(row) if char in "▘▝▖▗"]
    (x0, y0), (x1, y1), (x2, y2) = sorted(marks)
    assert (x0, y0) == (0, 0) and (x2, y2) == (len(rows[0]) - 1, 7)
    assert abs(x1 - len(rows[0]) / 2) <= 1 and y1 in (3, 4)


def test_the_first_steps_do_not_squash_the_rest():
    losses = [(n, 100.0 if n < 3 else 3 - n / 100) for n in range(100)]
    rows = plot(losses)
    assert all(row[3:].strip() for row in rows)  # the frame is filled by what comes later
    labels = "".join(line.plain for line in curve(losses, [], 60, 8))
    assert "100.0" not in labels


@pytest.mark.parametrize(
    "losses", [[2.0], [2.0] * 30, [0.0] * 30, [1e-9, 2e-9], [math.nan, 2.0], [math.inf] * 3, [1e9, 1.0]]
)
def test_odd_losses(losses):
    rows = plot(enumerate(losses, 1))
    assert any(row.strip() for row in rows) == any(map(math.isfinite, losses))


def test_labels_are_round_numbers():
    lines = [line.plain for line in curve([(n, 2.03 + n / 1000) for n in range(1000)], [], 80, 12)]
    labels = [line.split("┤")[0].strip() for line in lines if "┤" in line]
    assert labels == sorted(labels, reverse=True) and len(labels) >= 3
    assert all(len(label) <= 4 for label in labels), labels
    assert lines[-1].split()[:3] == ["0", "200", "400"]


def test_terms_and_clocks():
    events = [BEGIN, step(10, 5.0, terms={"words": 4.5, "next_sentence": 0.5})]
    text = "\n".join(shown(events, 100))
    assert "next sentence" in text and "4.500" in text
    assert "about 8 min left" in text
    assert "about 7 min left" in "\n".join(
        shown(events, 100, idle_seconds=60.0)
    )  # the clock goes on between two events
    ended = "\n".join(shown([*events, {"event": "end", "step": 10, "finished": True}], 100, idle_seconds=60.0))
    assert "finished" in ended and "left" not in ended and "   5 s   " in ended


def test_a_sample_cannot_move_the_cursor():
    events = [BEGIN, step(10, 5.0), {"event": "sample", "step": 10, "text": "a\x1b[2Jb\x07[bold]c"}]
    text = "\n".join(shown(events, 80))
    assert "\x1b" not in text and "\x07" not in text
    assert "a�[2Jb�[bold]c" in text
    assert "\x1b" not in line_of(events[-1])


def test_lines():
    assert line_of(BEGIN) == "GPT-2, 124.4 M parameters, causal-lm, cpu, fp32: 1,000 steps, 5,000 examples"
    assert line_of({**BEGIN, "step": 30}).endswith("Going on from step 30.")
    assert "cuda × 8, bf16" in line_of({**BEGIN, "device": "cuda", "devices": 8, "precision": "bf16"})
    told = line_of(step(100, 2.5), "token")
    assert told == "step 100 of 1,000  loss 2.500  lr 3.0e-4  grad norm 0.800  12,346 tokens/s  7 min 30 s left"
    assert line_of(evaluation(100, 2.5)) == "step 100  held out: loss 2.500, perplexity 12.182  (best)"
    assert line_of({"event": "note", "step": 1, "text": "a note"}) == "a note"
    assert line_of({"event": "end", "step": 1}) is None


def test_numbers_as_people_write_them():
    assert [number(v) for v in (2.0, 0.12345, 123.456, 0.00012, 1234567, math.nan)] == [
        "2.000", "0.123", "123.5", "0.00012", "1.23e+06", "nan",
    ]  # fmt: skip
    assert [amount(n) for n in (950, 12_300, 124_439_808, 1.5e9)] == ["950", "12,300", "124.4 M", "1.5 B"]
    assert [duration(s) for s in (0, 42, 200, 7500, 273_600)] == ["0 s", "42 s", "3 min 20 s", "2 h 05 min", "3 d 4 h"]
    assert [roughly(s) for s in (42, 200, 7500)] == ["42 s", "3 min", "2 h 05 min"]
    assert [power(v) for v in (3e-4, 0, 1.24e-5, 1.0)] == ["3.0e-4", "0", "1.2e-5", "1.0e0"]
