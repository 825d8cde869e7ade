"""Answers of a given form: what a grammar takes, which tokens it allows, and that every walk ends well."""

import json
import random
import re

import pytest
import torch
from tokenizers import decoders

from clearhead.errors import InputError
from clearhead.generate.constraint import constrain
from clearhead.generate.grammar import Grammar
from clearhead.generate.grammar.automaton import Automaton, characters, complement
from clearhead.generate.grammar.constraint import GrammarConstraint
from clearhead.text import Tokenizer, train_tokenizer
from clearhead.text.builders.bpe import WordMergesFiles, byte_bpe
from clearhead.text.builders.ctrl import CtrlVocabulary
from clearhead.text.builders.sentencepiece import pipeline
from clearhead.text.builders.sentencepiece_model import Piece, PieceType, SentencePieceModel
from clearhead.text.builders.wordpiece import wordpiece
from tests.generate.json_samples import SCHEMAS, document, fits, spoilt
from tests.text.samples import corpus

# ---- tokenizers


@pytest.fixture(scope="module")
def tokenizers() -> dict[str, Tokenizer]:
    rng = random.Random(1)
    lines = corpus(600)
    for n in range(600):
        lines.append(json.dumps(document(SCHEMAS[n % len(SCHEMAS)], rng), ensure_ascii=False))
    made = {
        "bpe": train_tokenizer(iter(lines), "bpe", 900, show_progress=False),
        "wordpiece": train_tokenizer(iter(corpus(600)), "wordpiece", 500, show_progress=False),
        "unigram": train_tokenizer(iter(lines), "unigram", 700, show_progress=False),
    }
    words = [Piece(f"▁{word}", -n / 10, PieceType.NORMAL) for n, word in enumerate("the of and name positive".split())]
    letters = [Piece(char, -9.0, PieceType.NORMAL) for char in '▁abcdefghijklmnopqrstuvwxyz0123456789-"{},:中']
    pieces = [Piece("<unk>", 0.0, PieceType.UNKNOWN)]
    pieces += [Piece(text, 0.0, PieceType.CONTROL) for text in ("<s>", "</s>")]
    pieces += [Piece(f"<0x{value:02X}>", 0.0, PieceType.BYTE) for value in range(256)]
    model = SentencePieceModel(pieces=pieces + words + letters, byte_fallback=True)
    special = {"unk_token": "<unk>", "bos_token": "<s>", "eos_token": "</s>"}
    made["sentencepiece"] = Tokenizer(pipeline(model), named=special)
    return made


def end_of(tokenizer: Tokenizer) -> int:
    found = tokenizer.eos_token_id if tokenizer.eos_token_id is not None else tokenizer.sep_token_id
    assert found is not None
    return found


def walk(constraint: GrammarConstraint, rng: random.Random, most: int = 300, eager: bool = True) -> list[int]:
    """Random allowed tokens to the end token, which is left out. Eager takes the end when it may, and half the time
    a token that ends soon."""
    state, ids = constraint.start(), []
    for n in range(most):
        allowed = constraint.allowed(state, remaining=most - n)
        ended = bool(allowed[constraint.eos_ids].any())
        assert ended == constraint.is_complete(state)
        choices = allowed.nonzero()[:, 0].tolist()
        if ended and ((eager and rng.random() < 0.3) or set(choices) <= set(constraint.eos_ids)):
            assert constraint.is_complete(constraint.advance(state, constraint.eos_ids[0]))
            return ids
        token = rng.choice([token for token in choices if token not in constraint.eos_ids])
        state = constraint.advance(state, token)
        ids.append(token)
    raise AssertionError("the walk did not end")


def text_of(tokenizer: Tokenizer, ids: list[int]) -> str:
    return tokenizer.decode(ids, clean_up_tokenization_spaces=False)


def accepts(constraint: GrammarConstraint, ids: list[int]) -> bool:
    """Whether each of these tokens is allowed in its place, and then an end."""
    state = constraint.start()
    for token in ids:
        if not constraint.allowed(state)[token]:
            return False
        state = constraint.advance(state, token)
    return bool(constraint.allowed(state)[constraint.eos_ids[0]])


# ---- characters and regular expressions


def test_characters_are_their_utf8_bytes():
    rng = random.Random(0)
    edges = [0, 0x7F, 0x80, 0x7FF, 0x800, 0xFFF, 0x1000, 0xD7FF, 0xE000, 0xFFFF, 0x10000, 0x3FFFF, 0x40000, 0x10FFFF]
    for _ in range(60):
        low, high = sorted(rng.choice(edges) + rng.randint(-70, 70) for _ in range(2))
        low, high = max(low, 0), min(high, 0x10FFFF)
        for ranges, inside in (([(low, high)], True), (complement([(low, high)]), False)):
            automaton = Automaton(characters(ranges))
            codes = {low - 1, low, low + 1, high - 1, high, high + 1, (low + high) // 2, *edges}
            for code in codes:
                if 0 <= code <= 0x10FFFF and not 0xD800 <= code < 0xE000:
                    state = automaton.after(automaton.start, chr(code).encode())
                    assert (state >= 0 and bool(automaton.accepts[state])) == ((low <= code <= high) is inside)
    everything = Automaton(characters([(0, 0x10FFFF)]))
    for wrong in (b"\xc0\x80", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\x80", b"\xff", b"\xe0\x9f\xbf"):
        assert everything.after(everything.start, wrong) < 0


ALPHABET = "ab1_ -é中😀\n"


def random_regex(rng: random.Random, depth: int = 3) -> str:
    kind = rng.random()
    if depth == 0 or kind < 0.35:
        return rng.choice(
            ["a", "b", "1", "é", "中", "😀", r"\-", r"\d", r"\w", r"\s", r"\W", r"\D", r"\S", ".", "[a-b]", "[^a]",
             r"[\d_]", "[é-中]", r"[^\s😀]", r"\x61", r"\u4e2d", "-", "[a-]", r"[^\W]", r"\n"]
        )  # fmt: skip
    if kind < 0.6:
        return "".join(random_regex(rng, depth - 1) for _ in range(rng.randint(0, 3)))
    if kind < 0.8:
        opened = rng.choice(["(", "(?:"])
        return opened + "|".join(random_regex(rng, depth - 1) for _ in range(rng.randint(1, 3))) + ")"
    inner = rng.choice(["(?:{})", "({})"]).format(random_regex(rng, depth - 1))
    low = rng.randint(0, 2)
    count = rng.choice(
        ["*", "+", "?", "*?", f"{{{low}}}", f"{{{low},}}", f"{{{low},{low + rng.randint(0, 2)}}}", "{,2}"]
    )
    return inner + count


def test_random_regexes_agree_with_python():
    rng = random.Random(2)
    taken = refused = 0
    for _ in range(400):
        pattern = random_regex(rng)
        if rng.random() < 0.2:
            pattern += "|" + random_regex(rng)
        grammar, python = Grammar.regex(pattern), re.compile(pattern, re.ASCII)
        for _ in range(25):
            text = "".join(rng.choice(ALPHABET) for _ in range(rng.choice([0, 1, 1, 2, 2, 3, 4, 6])))
            expected = python.fullmatch(text) is not None
            assert grammar.matches(text) == expected, (pattern, text)
            taken, refused = taken + expected, refused + (not expected)
    assert taken > 1000
    assert refused > 1000


def test_counts_are_not_unrolled():
    grammar = Grammar.regex(r"(?:[a-z]{1,500} ){2,1000}")
    assert grammar.matches("ab " * 3)
    assert not grammar.matches("ab ")
    assert Grammar.regex("(a*)*(b*)*").matches("aab")  # a loop that may take nothing
    assert Grammar.regex("(?:a?){3,4}").matches("")
    assert not Grammar.regex("(?:a?){3,4}").matches("aaaaa")


@pytest.mark.parametrize(
    ("pattern", "named"),
    [
        ("^a", "anchor ^"), ("a$", "anchor $"), (r"\bword", "word boundary"), (r"\Aa", "anchor"),
        ("(?=a)", "lookahead"), ("(?!a)", "lookahead"), ("(?<=a)", "lookbehind"), ("(?<!a)", "lookbehind"),
        (r"(a)\1", "backreference"), ("(?P=x)", "backreference"), ("(?P<x>a)", "named group"), ("(?i)a", "flag"),
        ("a*+", "possessive"), ("a**", "two quantifiers"), ("*a", "nothing to repeat"), ("a{2,1}", "above its most"),
        ("a{x}", "no quantifier"), ("(a", "without its )"), ("a)", "without its ("), ("[a", "without its ]"),
        ("[]", "empty class"), ("[b-a]", "higher to the lower"), (r"[\d-z]", "between classes"), (r"\q", "escape \\q"),
        ("(" * 101 + ")" * 101, "groups within each other"), (r"\x1", "hexadecimal"), ("a\\", "escape"),
        ("(?>a)", "atomic"),
    ],
)  # fmt: skip
def test_what_a_regex_may_not_have_is_refused_by_name(pattern, named):
    with pytest.raises(InputError, match=re.escape(named)):
        Grammar.regex(pattern)


def test_a_grammar_without_any_text_is_refused():
    with pytest.raises(InputError, match="No text fits"):
        Grammar.regex("a[^\\x00-\\uffff\U00010000-\U0010ffff]")


REGEXES = [
    r"\d{4}-\d\d-\d\d",
    r"(yes|no|maybe)( (yes|no|maybe)){0,3}",
    r"[a-z]+( [a-z]+)*",
    r"(é|中文|😀|naïve|\d)+",
    r"[^a-z\n]{3,9}",
    r"a.b|.{2,4}",
]


@pytest.mark.parametrize("kind", ["bpe", "unigram", "sentencepiece", "wordpiece"])
@pytest.mark.parametrize("pattern", REGEXES)
def test_walks_end_in_a_match(tokenizers, kind, pattern):
    tokenizer, rng = tokenizers[kind], random.Random(3)
    try:
        constraint = Grammar.regex(pattern).bind(tokenizer, [end_of(tokenizer)])
    except InputError as error:
        assert (kind, pattern) == ("wordpiece", REGEXES[0]), error  # it writes " - " there
        return
    for _ in range(40):
        text = text_of(tokenizer, walk(constraint, rng))
        assert re.fullmatch(f" ?(?:{pattern})", text), text


# ---- choices

CHOICES = {
    "bpe": ["positive", "negative", "neither of the two", "pos", "中文", "é", "👨‍👩️", "don't know", " spaced", "A.B"],
    "unigram": ["walked", "walk", "the time", "café naïve", "time and time"],
    "sentencepiece": ["positive", "posit", "the name of", "中文", "é😀", "a-b", "UPPER case"],
    "wordpiece": ["walking", "walked", "walk", "the time", "unbelievable reading", "off"],
}


@pytest.mark.parametrize("kind", CHOICES)
def test_every_choice_can_be_written_and_nothing_else(tokenizers, kind):
    tokenizer, choices, rng = tokenizers[kind], CHOICES[kind], random.Random(4)
    constraint = Grammar.choices(choices).bind(tokenizer, [end_of(tokenizer)])
    for choice in choices:
        assert accepts(constraint, tokenizer.encode(choice, add_special_tokens=False)), choice
        assert constraint.can_write(choice)
    assert not constraint.can_write("the")
    found = set()
    for _ in range(60 * len(choices)):
        text = text_of(tokenizer, walk(constraint, rng))
        assert text in choices or text.removeprefix(" ") in choices, text
        found.add(text if text in choices else text.removeprefix(" "))
    assert found == set(choices)


def test_a_prefix_may_end_or_go_on(tokenizers):
    tokenizer = tokenizers["bpe"]
    end = end_of(tokenizer)
    constraint = Grammar.choices(["a", "ab"]).bind(tokenizer, [end])
    state = constraint.start()
    assert not constraint.is_complete(state)
    assert not constraint.allowed(state)[end]
    state = constraint.advance(state, tokenizer.convert_tokens_to_ids("a"))
    assert constraint.allowed(state).nonzero()[:, 0].tolist() == sorted([end, tokenizer.convert_tokens_to_ids("b")])
    state = constraint.advance(state, tokenizer.convert_tokens_to_ids("b"))
    assert constraint.allowed(state).nonzero()[:, 0].tolist() == [end]
    ended = constraint.advance(state, end)
    assert constraint.advance(ended, 5) == ended  # padding
    assert constraint.allowed(ended).nonzero()[:, 0].tolist() == [end]
    assert constraint.advance(constraint.start(), tokenizer.convert_tokens_to_ids("c")) is None


def test_an_end_that_was_forced_too_early_is_not_complete(tokenizers):
    tokenizer = tokenizers["bpe"]
    constraint = Grammar.choices(["ab"]).bind(tokenizer, [end_of(tokenizer)])
    assert not constraint.is_complete(constraint.advance(constraint.start(), end_of(tokenizer)))


def test_characters_may_be_cut_between_tokens(tokenizers):
    """Byte by byte, no token of the 900 being a whole 😀."""
    tokenizer = tokenizers["bpe"]
    constraint = Grammar.choices(["é", "中文", "😀", "😁"]).bind(tokenizer, [end_of(tokenizer)], leading_space=False)
    ids = tokenizer.encode("😁", add_special_tokens=False)
    assert len(ids) > 1
    assert accepts(constraint, ids)
    state = constraint.start()
    for token in ids[:-1]:
        state = constraint.advance(state, token)
        assert not constraint.is_complete(state)
    last = constraint.allowed(state).nonzero()[:, 0].tolist()
    assert {tokenizer.decode([*ids[:-1], token]) for token in last} == {"😀", "😁"}


def test_the_leading_space(tokenizers):
    tokenizer = tokenizers["bpe"]
    ids = tokenizer.encode(" positive", add_special_tokens=False)
    for space in (True, False):
        constraint = Grammar.choices(["positive"]).bind(tokenizer, [end_of(tokenizer)], leading_space=space)
        assert accepts(constraint, ids) is space
        assert not accepts(constraint, tokenizer.encode("  positive", add_special_tokens=False))


@pytest.mark.parametrize("choices", ["positive", [], ["a", ""], ["a", 1]])
def test_what_is_no_list_of_choices(choices):
    with pytest.raises(InputError, match="list of texts"):
        Grammar.choices(choices)


def test_half_a_character_is_no_choice():
    with pytest.raises(InputError, match="half a character"):
        Grammar.choices(["\ud83d"])


# ---- what a tokenizer cannot write


def small_wordpiece(*tokens: str) -> Tokenizer:
    names = {"unk_token": "[UNK]", "sep_token": "[SEP]"}
    vocab = {token: n for n, token in enumerate(["[UNK]", "[SEP]", *tokens])}
    backend = wordpiece(vocab, names, lowercase=True)
    backend.add_special_tokens(["[UNK]", "[SEP]"])
    return Tokenizer(backend, named=names)


def test_what_cannot_be_spelled_is_said_at_once(tokenizers):
    tokenizer = tokenizers["wordpiece"]
    end = [end_of(tokenizer)]
    with pytest.raises(InputError, match=r"cannot write 'Walked'.*'walked'"):
        Grammar.choices(["walked", "Walked"]).bind(tokenizer, end)
    with pytest.raises(InputError, match='cannot write "don\'t"'):
        Grammar.choices(["don't"]).bind(tokenizer, end)  # its own tokens decode to "don ' t"
    with pytest.raises(InputError, match="cannot spell any text that fits the JSON schema"):
        Grammar.json({"properties": {"a": {"type": "string"}}, "required": ["a"]}).bind(tokenizer, end)


def test_dead_ends_are_seen_before_they_are_entered():
    """c may be written, but not the d after it; so c must not be."""
    tokenizer = small_wordpiece("a", "##b", "c", "ab")
    constraint = Grammar.regex("ab|cd|ax").bind(tokenizer, [1])
    assert tokenizer.convert_ids_to_tokens(constraint.allowed(constraint.start()).nonzero()[:, 0].tolist()) == [
        "a",
        "ab",
    ]
    with pytest.raises(InputError, match="cannot spell any text"):
        Grammar.regex("cd|ax").bind(tokenizer, [1])


def test_a_first_token_is_a_whole_one():
    """`##b` in the front would decode to `##b`."""
    tokenizer = small_wordpiece("a", "##b", "b", ".")
    constraint = Grammar.regex("b?a?b?").bind(tokenizer, [1])
    assert tokenizer.convert_ids_to_tokens(constraint.allowed(constraint.start()).nonzero()[:, 0].tolist()) == [
        "[SEP]",
        "a",
        "b",
    ]
    sentence = Grammar.regex(r"a b\.").bind(tokenizer, [1])
    assert accepts(sentence, tokenizer.encode("a b.", add_special_tokens=False))


def test_special_and_unused_tokens_are_never_allowed():
    tokens = ["<|endoftext|>", *byte_alphabet(), "<tool>", "[unused1]"]
    backend = byte_bpe({token: n for n, token in enumerate(tokens)}, [])
    backend.add_special_tokens(["<|endoftext|>", "<tool>"])
    tokenizer = Tokenizer(backend, named={"eos_token": "<|endoftext|>"}, extra=["<tool>"])
    constraint = Grammar.regex(r"[\s\S]*").bind(tokenizer, [0], vocab_size=300)
    allowed = constraint.allowed(constraint.start())
    assert allowed.shape == (300,)
    # each byte that may begin a character, and the end
    assert int(allowed.sum()) == 128 + (0xF5 - 0xC2) + 1
    assert not allowed[257:].any()


def byte_alphabet() -> list[str]:
    from clearhead.text.readable import BYTE_OF

    return sorted(BYTE_OF)


def test_an_end_token_is_needed(tokenizers):
    for ends in ([], [10**6], [-1]):
        with pytest.raises(InputError, match="a token of the model that ends the answer"):
            Grammar.choices(["a"]).bind(tokenizers["bpe"], ends, vocab_size=1000)


def test_a_token_that_ends_is_no_text(tokenizers):
    tokenizer = tokenizers["bpe"]
    newline = tokenizer.encode("\n", add_special_tokens=False)
    constraint = Grammar.regex("a\n?").bind(tokenizer, newline)
    state = constraint.advance(constraint.start(), tokenizer.convert_tokens_to_ids("a"))
    assert constraint.advance(state, newline[0]) != state
    assert not constraint.advance(state, newline[0]).node >= 0


def test_an_unknown_decoder_is_refused(tokenizers):
    backend = byte_bpe({"a": 0, "b": 1}, [])
    backend.decoder = decoders.CTC()
    with pytest.raises(InputError, match="CTC"):
        Grammar.choices(["a"]).bind(Tokenizer(backend), [1])


def test_a_changed_tokenizer_is_read_again():
    tokenizer = small_wordpiece("a")
    with pytest.raises(InputError):
        Grammar.choices(["new"]).bind(tokenizer, [1])
    tokenizer.add_tokens(["new"])
    assert Grammar.choices(["new"]).bind(tokenizer, [1]).can_write("new")


# ---- spaces after words: GPT and CTRL


@pytest.fixture
def word_bpe(tmp_path) -> Tokenizer:
    letters = "abcdeghinopstv"
    vocab = ["<unk>", "<end>", *letters, *(f"{char}</w>" for char in letters), "th", "the</w>", "po"]
    (tmp_path / "vocab.json").write_text(json.dumps({token: n for n, token in enumerate(vocab)}))
    (tmp_path / "merges.txt").write_text("#version: 0.2\nt h\nth e</w>\np o\n")
    backend = WordMergesFiles().build(tmp_path / "vocab.json", {"unk_token": "<unk>"}, {}, {}).backend
    return Tokenizer(backend, named={"unk_token": "<unk>", "eos_token": "<end>"})


@pytest.fixture
def ctrl() -> Tokenizer:
    letters = "abcdeghinopstv"
    vocab = ["<unk>", "<end>", *letters, *(f"{char}@@" for char in letters), "the", "th@@"]
    source = CtrlVocabulary({token: n for n, token in enumerate(vocab)}, {("t", "h"): 0, ("th", "e</w>"): 1}, "<unk>")
    made = Tokenizer(source.build(), named={"unk_token": "<unk>", "eos_token": "<end>"})
    made.source_files = source
    return made


@pytest.mark.parametrize("name", ["word_bpe", "ctrl"])
def test_words_that_carry_their_space_behind_them(name, request):
    tokenizer, rng = request.getfixturevalue(name), random.Random(5)
    choices = ["the cat on the pot", "the", "then", "positive", "a b", "ab"]
    constraint = Grammar.choices(choices).bind(tokenizer, [1])
    for choice in choices:
        assert accepts(constraint, tokenizer.encode(choice, add_special_tokens=False)), choice
    found = set()
    for _ in range(300):
        text = text_of(tokenizer, walk(constraint, rng))
        assert text in choices, text
        found.add(text)
    assert found == set(choices)


# ---- JSON


@pytest.mark.parametrize("number", range(len(SCHEMAS)))
def test_documents_are_taken_exactly_when_they_are_valid(number):
    schema, rng = SCHEMAS[number], random.Random(number)
    grammar = Grammar.json(schema)
    wrong = 0
    for _ in range(60):
        value = document(schema, rng)
        assert fits(schema, value), value
        for separators in ((",", ":"), (", ", ": ")):
            text = json.dumps(value, ensure_ascii=False, separators=separators)
            assert grammar.matches(text), text
            for _ in range(3):
                other = spoilt(text, rng)
                if grammar.matches(other):
                    assert fits(schema, json.loads(other)), other
                else:
                    wrong += 1
    assert wrong > 50


@pytest.mark.parametrize("kind", ["bpe", "unigram", "sentencepiece"])
@pytest.mark.parametrize("number", range(len(SCHEMAS)))
def test_walks_end_in_valid_json(tokenizers, kind, number):
    tokenizer, schema, rng = tokenizers[kind], SCHEMAS[number], random.Random(number)
    constraint = Grammar.json(schema).bind(tokenizer, [end_of(tokenizer)])
    for _ in range(6):
        text = text_of(tokenizer, walk(constraint, rng, most=120))
        assert fits(schema, json.loads(text)), text
        assert not re.search(r"[:,] {2}|[{\[ ] [}\]]", re.sub(r'"(?:\\.|[^"\\])*"', '""', text)), text


@pytest.mark.parametrize("kind", ["bpe", "sentencepiece"])
def test_documents_can_be_written_in_their_own_tokens(tokenizers, kind):
    tokenizer, rng = tokenizers[kind], random.Random(6)
    for schema in SCHEMAS:
        constraint = Grammar.json(schema).bind(tokenizer, [end_of(tokenizer)])
        for _ in range(5):
            text = json.dumps(document(schema, rng), ensure_ascii=False)
            ids = tokenizer.encode(text, add_special_tokens=False)
            if tokenizer.decode(ids) == text:  # a normalizer may change it
                assert accepts(constraint, ids), text


def test_strings_are_valid_json_and_utf8():
    grammar = Grammar.json({"type": "string"})
    for text in ['"\\ud83d\\ude00"', '"\\u00e9\\n\\/\\\\\\""', '"é中😀\x7f"', '""']:
        assert grammar.matches(text)
        json.loads(text)
    for text in ['"\\ud83d"', '"\\ude00"', '"\\ud83dx"', '"\n"', '"\\x"', '"\\u12"', '"', '"a""', "'a'", '"\ud83d"']:
        assert not grammar.matches(text), text
    short = Grammar.json({"minLength": 2, "maxLength": 3})
    assert [short.matches(f'"{text}"') for text in ("é", "é中", "\\ud83d\\ude00\\n😀", "abcd")] == [
        False,
        True,
        True,
        False,
    ]


@pytest.mark.parametrize(
    ("limits", "inside"),
    [
        ({"minimum": -13, "maximum": 207}, lambda n: -13 <= n <= 207),
        ({"exclusiveMinimum": 9, "maximum": 1000}, lambda n: 9 < n <= 1000),
        ({"minimum": -250, "exclusiveMaximum": -3}, lambda n: -250 <= n < -3),
        ({"minimum": 0}, lambda n: n >= 0),
        ({"maximum": 0}, lambda n: n <= 0),
        ({"exclusiveMaximum": 0}, lambda n: n < 0),
        ({"exclusiveMinimum": 0, "maximum": 1}, lambda n: 0 < n <= 1),
        ({"minimum": 5, "maximum": 5}, lambda n: n == 5),
    ],
)
def test_numbers_within_limits(limits, inside):
    whole, real = Grammar.json({"type": "integer", **limits}), Grammar.json({"type": "number", **limits})
    for n in range(-1100, 1100):
        assert whole.matches(str(n)) == inside(n), n
        for text in (f"{n}", f"{n}.0", f"{n}.05", f"{n}.50", f"{n}.999"):
            assert real.matches(text) == inside(float(text)), text
    assert not whole.matches("007")
    assert not whole.matches("-0")
    assert not real.matches("05.0")
    assert not real.matches("1.")
    for n in (10**15, -(10**15)):
        assert whole.matches(str(n)) == inside(n)


def test_limits_of_a_whole_number_may_be_fractions():
    grammar = Grammar.json({"type": "integer", "minimum": 1.5, "exclusiveMaximum": 3.5})
    assert [n for n in range(10) if grammar.matches(str(n))] == [2, 3]


def test_how_many_items():
    first = {"prefixItems": [{"type": "null"}, {"type": "boolean"}, {"type": "integer"}]}
    texts = ["[]", "[null]", "[null,true]", "[null,true,1]", '[null,true,1,"x"]', '[null,true,1,"x",{}]']

    def taken(**more):
        grammar = Grammar.json({**first, **more})
        return [n for n, text in enumerate(texts) if grammar.matches(text)]

    assert taken() == [0, 1, 2, 3]
    assert taken(minItems=2) == [2, 3]
    assert taken(maxItems=2) == [0, 1, 2]
    assert taken(maxItems=0) == [0]
    assert taken(minItems=4) == [4, 5]
    assert taken(minItems=1, maxItems=4, items={"type": "string"}) == [1, 2, 3, 4]
    assert taken(items=False) == [0, 1, 2, 3]
    assert not Grammar.json(first).matches("[true]")
    plain = Grammar.json({"items": {"type": "null"}, "minItems": 2, "maxItems": 3})
    assert [plain.matches(json.dumps([None] * n)) for n in range(5)] == [False, False, True, True, False]
    assert Grammar.json({"items": False}).matches("[]")


def test_order_and_extra_properties():
    closed = Grammar.json({"properties": {"a": {}, "b": {}}, "required": ["b"]})
    assert closed.matches('{"a":1,"b":2}')
    assert not closed.matches('{"b":2,"a":1}')
    assert not closed.matches('{"a":1}')
    assert not closed.matches('{"b":1,"c":2}')
    further = Grammar.json({"properties": {"ab": {"type": "null"}}, "additionalProperties": {"type": "integer"}})
    for text in ('{"ab":null,"a":1,"abc":2,"":3,"é":4}', '{"b":1}', "{}"):
        assert further.matches(text), text
    for text in ('{"ab":1}', '{"a":1,"ab":1}', '{"\\u0061b":1}', '{"x":null}', '{"b":1,}'):
        assert not further.matches(text), text
    anything = Grammar.json({"type": "object"})
    assert anything.matches('{"x":{"y":[1,"z"]}}')
    needed = Grammar.json({"required": ["id"], "additionalProperties": {"type": "integer"}})
    assert needed.matches('{"id":1,"x":2}')
    assert not needed.matches('{"x":2}')


def test_recursion_has_a_depth():
    tree = {"$ref": "#/$defs/t", "$defs": {"t": {"type": "array", "items": {"$ref": "#/$defs/t"}}}}
    grammar = Grammar.json(tree, max_depth=4)
    assert grammar.matches("[[],[[]]]")
    assert grammar.matches("[[[[]]]]")
    assert not grammar.matches("[[[[[]]]]]")
    assert Grammar.json(True, max_depth=2).matches("[[]]")
    assert not Grammar.json(True, max_depth=2).matches("[[[]]]")


def test_oneof_holds_for_exactly_one():
    cat, dog = ({"type": "object", "properties": {"kind": {"const": kind}}, "required": ["kind"]} for kind in "cd")
    pets = Grammar.json({"oneOf": [{"$ref": "#/$defs/c"}, {"$ref": "#/$defs/d"}], "$defs": {"c": cat, "d": dog}})
    assert pets.matches('{"kind":"d"}')
    assert Grammar.json({"oneOf": [{"type": "string"}, {"type": ["null", "boolean"]}]}).matches("null")
    for options in (
        [{"type": "integer"}, {"type": "number"}],
        [{}, {"type": "null"}],
        [{"enum": [1, 2]}, {"const": 2.0}],
        [{"type": "object"}, cat],
    ):
        with pytest.raises(InputError, match="oneOf at #: a value may fit alternatives 0 and 1"):
            Grammar.json({"oneOf": options})


def test_patterns_are_searched_as_schemas_mean_it():
    anchored = Grammar.json({"type": "string", "pattern": '^[a-c"\\\\\\n]{2}$'})
    for text in ("ab", 'a"', "\\\\", "\n\n"):
        assert anchored.matches(json.dumps(text)), text
    assert not anchored.matches('"abc"')
    inside = Grammar.json({"pattern": "é\\$"})
    assert inside.matches('"xé$y"')
    assert inside.matches('"é$"')
    assert not inside.matches('"é"')
    with pytest.raises(InputError, match=r"pattern at #/items: .*lookahead"):
        Grammar.json({"items": {"pattern": "(?=a)"}})
    with pytest.raises(InputError, match="one side of a"):
        Grammar.json({"pattern": "^a|b$"})


@pytest.mark.parametrize(
    ("schema", "named"),
    [
        ({"type": "string", "format": "date"}, "'format'"),
        ({"type": "array", "uniqueItems": True}, "'uniqueItems'"),
        ({"properties": {"a": {"multipleOf": 2}}}, "#/properties/a has 'multipleOf'"),
        ({"not": {}}, "'not'"),
        ({"propertis": {}}, "Did you mean properties"),
        ({"type": "text"}, "one of object"),
        ({"allOf": [{}, {}]}, "allOf"),
        ({"anyOf": []}, "anyOf"),
        ({"anyOf": [{}], "properties": {}}, "beside properties"),
        ({"$ref": "#/$defs/x"}, "has no '\\$defs'"),
        ({"$ref": "other.json"}, "same schema"),
        ({"items": [{}, {}]}, "prefixItems"),
        ({"enum": []}, "enum"),
        ({"minLength": -1}, "minLength"),
        ({"minItems": 3, "maxItems": 2}, "above maxItems"),
        ({"pattern": "a", "maxLength": 3}, "beside a length"),
        ({"type": "number", "minimum": 0.5}, "fraction"),
        ({"minimum": "0"}, "must be a number"),
        ({"required": "a"}, "required"),
        ({"properties": []}, "properties"),
        ([], "object, true or false"),
        (False, "No JSON text"),
        ({"type": "integer", "minimum": 2, "maximum": 1}, "No JSON text"),
        ({"required": ["a"], "additionalProperties": False}, "No JSON text"),
        ({"$ref": "#"}, "No JSON text"),
        ({"properties": {"a": {"$ref": "#"}}, "required": ["a"]}, "No JSON text"),
        ({"const": float("nan")}, "cannot write"),
        ({"type": "string", "enum": [1]}, "No JSON text"),
    ],
)
def test_what_a_schema_may_not_have_is_refused_by_name(schema, named):
    with pytest.raises(InputError, match=named):
        Grammar.json(schema)


# ---- in time, and in the loop


@pytest.mark.parametrize("kind", ["bpe", "unigram"])
def test_a_text_is_brought_to_its_end_in_time(tokenizers, kind):
    tokenizer, rng = tokenizers[kind], random.Random(7)
    schema = {"properties": {"a": {"type": "string"}, "b": {"items": {"type": "string"}}}, "required": ["a", "b"]}
    constraint = Grammar.json(schema).bind(tokenizer, [end_of(tokenizer)])
    for room in (20, 21, 25, 40):
        for _ in range(10):
            ids = walk(constraint, rng, most=room, eager=False)
            assert len(ids) < room
            assert fits(schema, json.loads(text_of(tokenizer, ids)))


def test_grammars_may_be_joined():
    grammar = Grammar.choices(["unknown"]) | Grammar.regex(r"\d+")
    assert grammar.matches("unknown")
    assert grammar.matches("12")
    assert not grammar.matches("unknown12")


def test_the_processor_keeps_rows_apart_and_lets_finished_ones_be(tokenizers):
    tokenizer = tokenizers["bpe"]
    end, a, b, c = end_of(tokenizer), *(tokenizer.convert_tokens_to_ids(char) for char in "abc")
    size = len(tokenizer) + 3  # a model with room to spare
    process = constrain(Grammar.choices(["ab", "ac", "b"]).bind(tokenizer, [end], vocab_size=size), 1)
    scores = torch.randn(4, size)
    prompt = torch.full((4, 1), c)
    assert set(allowed_in(process(prompt, scores))[0]) >= {a, b}
    texts = torch.tensor([[a], [b], [b], [c]])
    found = allowed_in(process(torch.cat([prompt, texts], 1), scores))
    assert found[:3] == [sorted([b, c]), [end], [end]]
    assert len(found[3]) == size  # a beam that cannot be saved is left to its own score
    texts = torch.tensor([[a, c], [b, end], [b, end], [a, b]])
    assert allowed_in(process(torch.cat([prompt, texts], 1), scores)) == [[end]] * 4
    kept = process(prompt, scores)[0]
    assert torch.equal(kept[kept > -torch.inf], scores[0][kept > -torch.inf])


def test_the_processor_lets_forced_special_tokens_pass(tokenizers):
    tokenizer = tokenizers["sentencepiece"]
    end, code = end_of(tokenizer), tokenizer.bos_token_id
    process = constrain(Grammar.choices(["a"]).bind(tokenizer, [end]), 0)
    forced = torch.full((1, len(tokenizer)), -torch.inf)
    forced[0, code] = 0.0
    assert allowed_in(process(torch.zeros(1, 0, dtype=torch.long), forced)) == [[code]]
    after = allowed_in(process(torch.tensor([[code]]), torch.zeros(1, len(tokenizer))))[0]
    assert tokenizer.convert_tokens_to_ids("a") in after
    assert code not in after
    with pytest.raises(InputError, match="leave no token"):
        never_end = torch.zeros(1, len(tokenizer))
        never_end[0, [0, 1, end]] = -torch.inf
        process(torch.tensor([[code, tokenizer.convert_tokens_to_ids("a")]]), never_end)


def test_the_processor_ends_in_time(tokenizers):
    tokenizer = tokenizers["bpe"]
    end, a = end_of(tokenizer), tokenizer.convert_tokens_to_ids("a")
    process = constrain(Grammar.regex("a+!!").bind(tokenizer, [end]), 0, max_new_tokens=6)
    tokens = torch.zeros(1, 0, dtype=torch.long)
    while not (tokens == end).any():
        scores = torch.zeros(1, len(tokenizer))
        scores[0, a] = 9.0  # a model that would never stop
        tokens = torch.cat([tokens, process(tokens, scores).argmax(-1)[:, None]], 1)
        assert tokens.shape[1] <= 6
    assert re.fullmatch("a+!!", tokenizer.decode(tokens[0, :-1]))


def allowed_in(scores: torch.Tensor) -> list[list[int]]:
    return [(row > -torch.inf).nonzero()[:, 0].tolist() for row in scores]


@pytest.mark.parametrize(
    ("grammar", "text", "new"),
    [
        (Grammar.choices(["yes", "no"]), " yes", "yes"),
        (Grammar.choices(["yes", "no"]), "yes", "yes"),
        (Grammar.choices(["yes", " no"]), " no", " no"),
        (Grammar.choices(["yes", " no"]), " yes", "yes"),
        (Grammar.choices(["yes", " no"]), "  no", " no"),
        (Grammar.regex(""), " ", ""),
        (Grammar.regex("[a-z]{9}"), " cut", "cut"),  # before it was whole
        (Grammar.regex("[ a]+"), " a", " a"),
    ],
)
def test_the_space_that_is_no_part_of_the_form(grammar, text, new):
    assert grammar.without_free_space(text) == new
