"""The widget of notebooks: the finding goes in, what is pinned comes back."""

import pytest

import clearhead as ch

pytest.importorskip("anywidget")


def test_a_widget_holds_the_finding_and_what_is_chosen():
    made = ch.explain.next_token(ch.load("random-gpt2"), "The robot").widget(lang="zh")
    assert made.lang == "zh" and made.state == {}
    sent = made.get_state()
    assert sent["finding"]["kind"] == "next-tokens" and sent["lang"] == "zh"
    made.state = {"pinned": 2}
    assert made.get_state()["state"] == {"pinned": 2}
    assert "next_tokens.js" in made._esm
