"""Whether a secret shows in a text: as it is, or as a log, a page or an error may have put it."""

from __future__ import annotations

import base64
import json
import urllib.parse
from collections.abc import Iterable, Iterator, Mapping


def disguises(secret: bytes) -> Iterator[str]:
    """How a text may show these bytes: plain, escaped, hexadecimal, in base64 with whatever around it."""
    text = secret.decode()
    yield text
    yield json.dumps(text)[1:-1]
    yield urllib.parse.quote(text, safe="")
    yield secret.hex()
    yield secret.hex().upper()
    for before in range(3):
        # In base64 of a longer text three bytes make four letters: the letters that only the secret decides.
        letters = base64.b64encode(bytes(before) + secret).decode()
        inner = letters[4 * ((before + 2) // 3) : 4 * ((before + len(secret)) // 3)]
        yield inner
        yield inner.replace("+", "-").replace("/", "_")


def shown(text: str, secrets: Mapping[str, bytes]) -> list[str]:
    """The names of those secrets that the text shows, or half of which it shows (cut values are values)."""
    return [
        name
        for name, secret in secrets.items()
        if any(piece in text for part in _halves(secret) for piece in disguises(part))
    ]


def _halves(secret: bytes) -> Iterable[bytes]:
    text = secret.decode()
    assert len(text) >= 24, "a short one would be found by chance"
    middle = len(text) // 2
    return text[:middle].encode(), text[middle:].encode()
