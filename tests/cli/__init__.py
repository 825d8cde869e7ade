"""The verbs, as a user types them."""

VERBS = ("generate", "next", "walk", "tokenize", "explain")


def with_model(words) -> list[str]:
    """The words of a command, with the small random model where none is named: quick, and its answers are known."""
    words = list(words)
    named = any(word in ("-m", "--model", "--list", "--show") or word.startswith("--model=") for word in words)
    if not words or words[0] not in VERBS or named or words == ["explain"]:  # explain alone lists
        return words
    return [words[0], "--model", "random-gpt2", *words[1:]]
