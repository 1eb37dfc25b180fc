"""Who may see the status page: by address, name of host and token; and the token's file."""

from __future__ import annotations

import os
from base64 import b64encode
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from sluice.proxy.admin.status.access import Access, digest_of, host_name
from sluice.proxy.admin.status.token import token_file
from sluice.proxy.config.admin import StatusOptions
from sluice.quotas.files.config_error import ConfigError

TOKEN = "0123456789abcdef"
HERE = {"host": "localhost:9308"}


def basic(password: str, user: str = "anybody") -> dict[str, str]:
    return {"authorization": "Basic " + b64encode(f"{user}:{password}".encode()).decode()}


def status(access: Access, peer: str, headers: dict[str, str]) -> int:
    refusal = access.refusal(peer, headers)
    return 200 if refusal is None else refusal.status


@pytest.mark.parametrize("peer", ["127.0.0.1", "127.9.9.9", "::1", "::ffff:127.0.0.1"])
def test_loopback_needs_no_token(peer: str) -> None:
    assert status(Access(), peer, HERE) == 200
    assert status(Access(digest_of(TOKEN)), peer, HERE) == 200


@pytest.mark.parametrize("peer", ["10.0.0.1", "192.168.0.1", "::ffff:10.0.0.1", "fe80::1", "", "unix"])
def test_elsewhere_is_refused_and_told_what_to_do(peer: str) -> None:
    refusal = Access().refusal(peer, HERE)
    assert refusal is not None
    assert refusal.status == 403
    assert "admin.status.token_file" in refusal.detail
    refusal = Access(digest_of(TOKEN)).refusal(peer, HERE)
    assert refusal is not None
    assert refusal.status == 401
    assert "missing" in refusal.detail


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ({"authorization": f"Bearer {TOKEN}"}, 200),
        ({"authorization": f"bearer   {TOKEN} "}, 200),
        (basic(TOKEN), 200),
        (basic(TOKEN, user=""), 200),
        ({"authorization": f"Bearer {TOKEN}0"}, 401),
        ({"authorization": f"Bearer {TOKEN[:-1]}"}, 401),
        ({"authorization": "Bearer "}, 401),
        ({"authorization": TOKEN}, 401),
        ({"authorization": f"Digest {TOKEN}"}, 401),
        (basic("wrong"), 401),
        ({"authorization": "Basic !!!"}, 401),
        ({"authorization": "Basic /w=="}, 401),
        ({"authorization": "Bearer \udcff\udcff"}, 401),
    ],
)
def test_the_token_opens_it_from_anywhere_under_any_name(headers: dict[str, str], expected: int) -> None:
    access = Access(digest_of(TOKEN))
    assert status(access, "10.0.0.1", {"host": "whatever", **headers}) == expected


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("localhost", 200),
        ("LOCALHOST:9308", 200),
        ("localhost.:9308", 200),
        ("127.0.0.1:9308", 200),
        ("[::1]:9308", 200),
        ("10.1.2.3", 200),
        ("sluice.example", 200),
        ("Sluice.Example:80", 200),
        ("evil.example", 403),
        ("localhost.evil.example", 403),
        ("127.0.0.1.evil.example:9308", 403),
        ("sluice.example.evil", 403),
        ("", 403),
        ("localhost@evil.example", 403),
    ],
)
def test_another_sites_name_that_leads_here_opens_nothing(host: str, expected: int) -> None:
    access = Access(hosts=["sluice.example"])
    assert status(access, "127.0.0.1", {"host": host}) == expected


def test_a_missing_host_is_an_unknown_one() -> None:
    assert status(Access(), "127.0.0.1", {}) == 403


@pytest.mark.parametrize("header", ["forwarded", "x-forwarded-for", "x-real-ip", "via"])
def test_what_another_server_passed_on_is_not_from_here(header: str) -> None:
    assert status(Access(), "127.0.0.1", {**HERE, header: "127.0.0.1"}) == 403
    access = Access(digest_of(TOKEN))
    assert status(access, "127.0.0.1", {**HERE, header: "127.0.0.1"}) == 401
    assert status(access, "127.0.0.1", {**HERE, header: "x", "authorization": f"Bearer {TOKEN}"}) == 200


def test_loopback_can_be_made_to_need_the_token_too() -> None:
    access = Access(digest_of(TOKEN), token_on_loopback=True)
    assert status(access, "127.0.0.1", HERE) == 401
    assert status(access, "127.0.0.1", {**HERE, **basic(TOKEN)}) == 200


def test_a_host_is_told_from_its_port() -> None:
    found = [host_name(host) for host in ("a:1", "a", "[::1]", "[::1]:80", "::1", "A.b.:1", " a ")]
    assert found == ["a", "a", "::1", "::1", ":", "a.b", "a"]


def put(file: Path, text: str, at_s: int) -> None:
    """As a Secret is exchanged: another file under the same name."""
    new = file.with_suffix(".new")
    new.write_text(text)
    os.utime(new, (at_s, at_s))
    new.replace(file)


def test_a_tokens_file_is_followed_and_a_bad_one_leaves_the_last_good_in_force(tmp_path: Path) -> None:
    file = tmp_path / "token"
    put(file, f"{TOKEN}\n", 1_000)
    token = token_file(StatusOptions(token_file=file))
    assert token is not None
    assert token.digest == digest_of(TOKEN)
    put(file, "another-token-of-some-length", 2_000)
    token.look()
    assert token.digest == digest_of("another-token-of-some-length")
    for number, bad in enumerate(
        (
            "short",
            "",
            "with a blank in its middle",
            "ünïcödé-is-not-in-headers",
            "a-token-of-some-length\nanother-token-of-some-length",
            "a-token-of-some-length\tits-name",
            "a-token-of-some\x7flength",
            "\ufeffa-token-of-some-length",
        )
    ):
        put(file, bad, 3_000 + number)
        token.look()
        assert token.digest == digest_of("another-token-of-some-length")
    with capture_logs() as lines:
        put(file, "another-token-of-some-length", 4_000)
        token.look()
    assert [line["event"] for line in lines] == ["status_token_in_force_again"]
    file.unlink()
    token.look()
    put(file, TOKEN, 5_000)
    token.look()
    assert token.digest == digest_of(TOKEN)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "cannot read the status page's token: no such file or directory"),
        (b"short-secret", "must be one line of 16 to 4096 ASCII characters"),
        (b"\xff\xfe-not-utf-8-at-all", "is not UTF-8"),
        (
            b"one-secret-of-a-good-length\r\nsecret-of-another-line\n",
            "without blanks, and the file holds it alone",
        ),
        (b"x" * 5_000, "must be one line of 16 to 4096 ASCII characters"),
    ],
)
def test_a_token_that_cannot_be_used_is_an_error_of_start_that_does_not_show_it(
    tmp_path: Path, content: bytes | None, message: str
) -> None:
    file = tmp_path / "token"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(ConfigError, match=message) as caught:
        token_file(StatusOptions(token_file=file))
    assert "secret" not in str(caught.value)


def test_where_the_page_is_off_the_token_still_guards_what_sluice_top_asks_for(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("a-token-of-some-length")
    found = token_file(StatusOptions(enabled=False, token_file=file))
    assert found is not None
    assert found.digest == digest_of("a-token-of-some-length")
    assert token_file(StatusOptions()) is None
