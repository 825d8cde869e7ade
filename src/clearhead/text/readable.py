"""Tokens as a person reads them: byte-level spellings undone, half characters shown as their bytes."""

import json
from typing import Any

import tokenizers


def readable(token: str, byte_level: bool) -> str:
    """`Ġrobot` is " robot"; a token that is part of a character shows its bytes, such as `\\xe4\\xb8`."""
    if not byte_level or any(char not in BYTE_OF for char in token):
        return token
    return bytes(BYTE_OF[char] for char in token).decode("utf-8", errors="backslashreplace")


def decoder_steps(backend: tokenizers.Tokenizer) -> list[dict[str, Any]]:
    """What the decoder does, in order, as the library describes it."""

    def flat(decoder: dict[str, Any]) -> list[dict[str, Any]]:
        if decoder["type"] == "Sequence":
            return [step for inner in decoder["decoders"] for step in flat(inner)]
        return [decoder]

    if backend.decoder is None:
        return []
    try:
        state = backend.decoder.__getstate__()
    except Exception:  # the library's own class for: it is written in Python, and can be asked nothing
        return [{"type": "rules of its own"}]
    return flat(json.loads(state))


def is_byte_level(backend: tokenizers.Tokenizer) -> bool:
    return any(step["type"] == "ByteLevel" for step in decoder_steps(backend))


def _byte_spellings() -> dict[str, int]:
    """GPT-2 writes each byte as one visible character: itself where it is visible, one from 256 on otherwise."""
    visible = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    hidden = [byte for byte in range(256) if byte not in visible]
    return {chr(byte): byte for byte in visible} | {chr(256 + n): byte for n, byte in enumerate(hidden)}


BYTE_OF = _byte_spellings()
