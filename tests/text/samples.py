"""Text to test with: a small corpus in the manner of English and Chinese, and strings made to be awkward."""

import random

WORDS = (
    "the of and to in is that for it as was with be by on not he his but at are this have from or had an they "
    "which one you were all her she there would their we him been has when who will no more if out so up said what "
    "its about than into them can only other time new some could these two may first then do any like my now over "
    "such our man me even most made after also did many off before must well back through years where much your way "
    "attention transformer tokenizer unbelievable reading writing walked walking talker café naïve"
).split()
HAN = "的一是不了人我在有他这为之大来以个中上们到说国和地也子时道出而要于就下得可你年生"
SPACES = " \t\n\r\u00a0\u3000\u2003\u200b\u2028\u0085\u1680\u202f\u205f\ufeff\u180e\u2581"
EMOJI = "😀🙏👨‍👩️❤🏽🇫🇷✨™①½ﬁ"


def sentence(rng: random.Random) -> str:
    text = " ".join(rng.choice(WORDS) for _ in range(rng.randint(3, 15)))
    kind = rng.random()
    if kind < 0.2:
        text += " " + "".join(rng.choice(HAN) for _ in range(rng.randint(2, 12)))
    if kind > 0.6:
        text = text.capitalize() + rng.choice([".", "!", "?", ",", "…", "'s", " don't", " — "])
    if kind > 0.9:
        text += " " + str(rng.randint(0, 10**6))
    return text


def corpus(count: int = 3000) -> list[str]:
    rng = random.Random(7)
    return [sentence(rng) for _ in range(count)]


def awkward(rng: random.Random, accents: bool = True, runs: bool = True) -> str:
    """Words, Chinese, emoji, odd spaces, control characters and anything else, mixed.

    `accents` allows combining accents, `runs` the same character many times over.
    """
    parts = []
    for _ in range(rng.randint(0, 7)):
        kind = rng.random()
        many = rng.randint(1, 5)
        if kind < 0.4:
            parts.append(sentence(rng)[: rng.randint(1, 60)])
        elif kind < 0.5:
            parts.append("".join(chr(rng.randint(0x4E00, 0x9FA5)) for _ in range(many)))
        elif kind < 0.6:
            parts.append("".join(rng.choice(EMOJI) for _ in range(many)))
        elif kind < 0.7:
            parts.append("".join(rng.choice(SPACES) for _ in range(many)))
        elif kind < 0.78:
            parts.append("".join(chr(rng.randint(0, 0x1F)) for _ in range(many)))
        elif kind < 0.85:
            parts.append("".join(chr(rng.randint(0xA0, 0x24F)) for _ in range(many)))
        elif kind < 0.9:
            parts.append(rng.choice("aeouAEn") + (chr(rng.randint(0x300, 0x36F)) if accents else "."))
        elif kind < 0.95:
            parts.append(rng.choice("ah.哈-e!") * (rng.randint(2, 12) if runs else 1))
        else:
            parts.append(chr(rng.choice([rng.randint(0xE000, 0x10FFFF), rng.randint(0x20, 0xD7FF)])))
        if rng.random() < 0.5:
            parts.append(" ")
    return "".join(parts)


def awkward_texts(count: int, seed: int = 0, **options: bool) -> list[str]:
    rng = random.Random(seed)
    fixed = ["", " ", "Hello, world!", "don't  stop .", "\n", "a" * 300, "[CLS] [MASK] hello", "ﬁ①½ Straße ＡＢ"]
    return fixed + [awkward(rng, **options) for _ in range(count)]
