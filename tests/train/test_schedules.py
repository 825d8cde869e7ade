"""Schedules: exact values, by the formulas of the papers."""

import math

import pytest

from clearhead.errors import InputError
from clearhead.train.engine.schedules import SCHEDULES, inverse_root, noam, schedule, slanted_triangular


def test_noam_is_the_formula_of_2017():
    rate = noam(width=512, warmup=4000)
    for n in (1, 2, 100, 3999, 4000, 4001, 100_000):
        assert rate(n - 1) == pytest.approx(512**-0.5 * min(n**-0.5, n * 4000**-1.5), rel=1e-12)


def test_inverse_root_is_noam_with_a_peak_of_one():
    rate, published = inverse_root(warmup=50), noam(width=64, warmup=50)
    assert max(rate(step) for step in range(400)) == rate(49) == 1.0
    for step in (0, 10, 49, 50, 51, 399):
        assert rate(step) == pytest.approx(published(step) / published(49), rel=1e-12)


def test_slanted_triangular_is_the_formula_of_ulmfit():
    total, cut_frac, ratio = 1000, 0.1, 32
    rate = slanted_triangular(total)
    cut = math.floor(total * cut_frac)
    for t in (1, 50, 99, 100, 101, 500, 999, 1000):
        p = t / cut if t < cut else 1 - (t - cut) / (cut * (1 / cut_frac - 1))
        assert rate(t - 1) == pytest.approx((1 + p * (ratio - 1)) / ratio, rel=1e-12)
    assert rate(cut - 1) == 1.0
    assert rate(total - 1) == pytest.approx(1 / 32)
    assert rate(5 * total) == pytest.approx(1 / 32)  # prolonged: it stays there


def test_linear_and_cosine():
    straight = schedule("linear", 110, warmup=10, final=0.2)
    wave = schedule("cosine", 110, warmup=10, final=0.1)
    for rate in (straight, wave):
        assert [rate(step) for step in (0, 4, 9, 10)] == pytest.approx([0.1, 0.5, 1.0, 1.0])
    assert straight(35) == pytest.approx(0.8)
    assert straight(60) == pytest.approx(0.6)
    assert straight(110) == straight(500) == pytest.approx(0.2)
    assert wave(35) == pytest.approx(0.1 + 0.9 * (1 + math.cos(math.pi / 4)) / 2)
    assert wave(60) == pytest.approx(0.55)
    assert wave(110) == wave(500) == pytest.approx(0.1)


def test_warmup_stable_decay():
    rate = schedule("warmup-stable-decay", 100, warmup=10, decay=0.2, final=0.1)
    assert [rate(step) for step in (0, 9, 10, 50, 80, 90, 100)] == pytest.approx([0.1, 1, 1, 1, 1, 0.55, 0.1])
    root = schedule("warmup-stable-decay", 100, decay=20, shape="root")
    assert root(85) == pytest.approx(1 - math.sqrt(0.25))
    with pytest.raises(InputError, match="do not fit into 100"):
        schedule("warmup-stable-decay", 100, warmup=90, decay=20)


def test_a_warmup_may_be_a_share():
    share, steps = schedule("cosine", 200, warmup=0.1), schedule("cosine", 200, warmup=20)
    assert [share(n) for n in range(200)] == [steps(n) for n in range(200)]
    assert schedule("constant", 200, warmup=0.1)(9) == 0.5
    with pytest.raises(InputError, match="is not known"):
        inverse_root(warmup=0.1)


@pytest.mark.parametrize("name", SCHEDULES)
def test_every_update_of_a_run_learns_something_and_none_more_than_the_peak(name):
    more = {"width": 16} if name == "noam" else {}
    warmup = 0 if name == "slanted-triangular" else 1
    for total in (1, 2, 7):
        factors = [schedule(name, total, warmup=warmup, **more)(step) for step in range(total)]
        assert all(0 < factor <= 1 for factor in factors)


def test_mistakes_are_named():
    with pytest.raises(InputError, match="Did you mean cosine"):
        schedule("cosin", 10)
    with pytest.raises(InputError, match="Did you mean decay"):
        schedule("warmup-stable-decay", 10, decai=0.2)
    with pytest.raises(InputError, match="no option 'final'"):
        schedule("constant", 10, final=0.1)
    with pytest.raises(InputError, match="no option 'warmup'"):
        schedule("slanted-triangular", 10, warmup=3)
    with pytest.raises(InputError, match="4000"):
        schedule("inverse-root", 10)
    with pytest.raises(InputError, match="width"):
        schedule("noam", 10, warmup=2)
    with pytest.raises(InputError, match=r"not 2\.5"):
        schedule("cosine", 10, warmup=2.5)
    with pytest.raises(InputError, match="at least one update"):
        schedule("cosine", 0)
