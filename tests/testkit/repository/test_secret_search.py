"""The search for secrets in logs finds one in each form in which a log may show it."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable

import pytest

from testkit.repository.secret_search import shown

SECRET = '0123456789abcdef"ü:fedcba9876543210+/'
HIDDEN = {"it": SECRET.encode()}


@pytest.mark.parametrize(
    "form",
    [
        str,
        json.dumps,
        lambda text: json.dumps(text, ensure_ascii=False),
        lambda text: text.encode().hex(),
        lambda text: base64.b64encode(f"\0alice\0{text}".encode()).decode(),
        lambda text: base64.b64encode(f"\0bob\0{text}?".encode()).decode(),
        lambda text: base64.urlsafe_b64encode(f"x{text}".encode()).decode(),
        lambda text: text[:25] + "… (38 characters)",
        lambda text: repr(text.encode()),
    ],
)
def test_a_secret_is_found_in_every_form(form: Callable[[str], str]) -> None:
    assert shown(f"line 1\nat {form(SECRET)} end", HIDDEN) == ["it"]


def test_a_text_without_it_shows_none() -> None:
    assert shown(json.dumps({"user": "alice", "detail": "abcdef0123456789" * 9}), HIDDEN) == []
