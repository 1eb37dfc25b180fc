"""The page as it is served: names are never markup, tables are tables, style and script are its own alone."""

from __future__ import annotations

import asyncio
import re
from base64 import b64encode
from collections import Counter
from collections.abc import Iterator
from hashlib import sha256
from html import escape, unescape
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path

import pytest

import sluice.proxy.admin.status
from sluice.proxy.admin.status.cells import curve, text
from sluice.proxy.admin.status.history import POINTS
from sluice.proxy.admin.status.model import (
    ConnectionsQuery,
    Direction,
    History,
    Order,
    PageQuery,
    Plan,
    PlanChange,
    Query,
)
from sluice.proxy.admin.status.page import CONTENT_SECURITY_POLICY, PageData, address, render
from sluice.proxy.admin.status.service import StatusDesk
from sluice.proxy.config.admin import StatusOptions
from sluice.quotas.names import printable
from testkit.oracles.replica_model import key_of
from testkit.oracles.replica_world import a_move
from testkit.proxy.status_feed import HOSTILE, Feed

FOLDER = Path(sluice.proxy.admin.status.__file__).parent
NO_QUESTION = PageQuery()
VOID = {"meta", "link", "input", "br", "img", "wbr"}
PLAN = Plan(
    state="shown",
    name="2026-11-20-1",
    date="2026-11-20",
    entities=3,
    changes=2,
    reviews=1,
    rows=[
        PlanChange(
            key="producer_byte_rate",
            who=f"user {name}",
            current=100.0,
            proposed=150.0,
            unit="bytes per second",
            reason="step_up",
            needs_review=True,
            confidence=0.5,
        )
        for name in ("alice", "<script>x</script>")
    ],
)


class Elements(HTMLParser):
    """Every element with its attributes and text; what is opened must be closed in order."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str]]] = []
        self.texts: list[tuple[str, str]] = []
        self._open: list[str] = []
        self.feed(html)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        names = [name for name, _ in attrs]
        assert len(names) == len(set(names)), f"{tag} has an attribute twice: {names}"
        self.found.append((tag, {name: value or "" for name, value in attrs}))
        if tag not in VOID:
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append((self._open[-1] if self._open else "", data))

    def all(self, tag: str) -> Iterator[dict[str, str]]:
        return (attributes for name, attributes in self.found if name == tag)


async def data_of(feed: Feed, query: PageQuery, plan: Plan) -> PageData:
    desk = StatusDesk(StatusOptions(), feed.desk.sources)
    rest = Query(search=query.search)
    return PageData(
        query=query,
        principals=await desk.principals(query),
        detail=await desk.principal(query.bucket) if query.bucket else None,
        events=await desk.events(rest),
        connections=await desk.connections(ConnectionsQuery(offset=query.connections_offset, limit=5)),
        producer_ids=await desk.producer_ids(rest),
        replication=await desk.replication(rest),
        plan=plan,
        summary=await desk.summary(),
    )


@pytest.fixture(scope="module")
def feed() -> Feed:
    made = Feed()
    made.fill()
    return made


def page(feed: Feed, query: PageQuery = NO_QUESTION, plan: Plan = PLAN) -> str:
    return "".join(render(asyncio.run(data_of(feed, query, plan))))


def test_the_page_is_well_formed_and_every_id_is_there_once(feed: Feed) -> None:
    elements = Elements(page(feed))
    ids = Counter(attributes["id"] for _, attributes in elements.found if "id" in attributes)
    assert [name for name, count in ids.items() if count > 1] == []
    named = {
        name
        for _, attributes in elements.found
        for key in ("aria-labelledby", "for")
        for name in attributes.get(key, "").split()
    }
    links = {a["href"][1:] for a in elements.all("a") if a["href"].startswith("#")}
    assert (named | links) - {"why-title"} <= ids.keys()


def test_hostile_names_are_text_and_nothing_else(feed: Feed) -> None:
    html = page(feed, PageQuery(limit=100))
    elements = Elements(html)
    tags = Counter(tag for tag, _ in elements.found)
    assert (tags["script"], tags["style"], tags["img"], tags["main"]) == (1, 1, 0, 1)
    assert not [key for _, attributes in elements.found for key in attributes if key.startswith("on")]
    shown = [words for _, words in elements.texts]
    for name in HOSTILE:
        assert any(printable(name[:256]) in words for words in shown), name
    assert all(character.isprintable() or character in "\n " for character in unescape(html))


def test_a_search_is_put_back_as_text(feed: Feed) -> None:
    evil = '"><script>alert(1)</script>'
    elements = Elements(page(feed, PageQuery(search=evil)))
    (field,) = (one for one in elements.all("input") if one["type"] == "search")
    assert field["value"] == evil
    assert sum(tag == "script" for tag, _ in elements.found) == 1
    assert all("<" not in a["href"] and '"' not in a["href"] for a in elements.all("a"))


def test_every_name_stands_alone_so_that_its_direction_is_its_own() -> None:
    assert text("שלום") == "<bdi>שלום</bdi>"
    assert text("a\u202eb&<") == "<bdi>a\\u202eb&amp;&lt;</bdi>"


def test_tables_have_captions_column_heads_and_row_heads(feed: Feed) -> None:
    html = page(feed)
    tables = re.findall(r"<table.*?</table>", html, re.S)
    assert len(tables) == 5
    for table in tables:
        elements = Elements(table)
        tags = Counter(tag for tag, _ in elements.found)
        assert tags["caption"] == 1
        columns = sum(th["scope"] == "col" for th in elements.all("th"))
        rows = sum(th["scope"] == "row" for th in elements.all("th"))
        assert rows == tags["tr"] - 1 > 0
        assert tags["td"] == rows * (columns - 1)
    assert html.count('role="region"') == html.count('class="scroll"') == 5


def test_headings_leave_out_no_level_and_there_is_one_of_the_first(feed: Feed) -> None:
    levels = [int(tag[1]) for tag, _ in Elements(page(feed)).found if re.fullmatch("h[1-6]", tag)]
    assert levels.count(1) == 1
    assert levels[0] == 1
    assert all(after - before <= 1 for before, after in pairwise(levels))


def test_nothing_is_loaded_from_anywhere_and_only_its_own_script_and_style_may_run(feed: Feed) -> None:
    html = page(feed)
    elements = Elements(html)
    assert [one for one in elements.found if "src" in one[1] or "style" in one[1]] == []
    assert all(link["href"].startswith("data:") for link in elements.all("link"))
    assert not re.search(r"(?:href|action)=\"(?:https?:)?//", html)
    for tag, directive in (("script", "script-src"), ("style", "style-src")):
        (content,) = re.findall(rf"<{tag}>(.*?)</{tag}>", html, re.S)
        digest = b64encode(sha256(content.encode()).digest()).decode()
        assert f"{directive} 'sha256-{digest}'" in CONTENT_SECURITY_POLICY
    assert "unsafe" not in CONTENT_SECURITY_POLICY
    assert CONTENT_SECURITY_POLICY.startswith("default-src 'none'")


def test_the_script_makes_no_markup_of_text() -> None:
    script = "".join((FOLDER / name).read_text() for name in ("status_cells.js", "status_page.js"))
    makers = r"(?:inner|outer)HTML\s*\+?=[^=]|insertAdjacentHTML|document\.write|eval\(|Function\("
    assert not re.search(makers, script)
    assert "://" not in script.replace("http://www.w3.org/2000/svg", "")


def test_heads_are_links_that_sort_and_the_sorted_one_says_so(feed: Feed) -> None:
    elements = Elements(page(feed, PageQuery(sort=Order.USED, search="a")))
    (sorted_by,) = (th for th in elements.all("th") if "aria-sort" in th)
    assert (sorted_by["data-sort"], sorted_by["aria-sort"]) == ("used", "descending")
    links = [a["href"] for a in elements.all("a")]
    assert "status?search=a&sort=used&order=asc" in links
    assert "status?search=a&sort=limit" in links
    assert "status?search=a&sort=utilisation" in links
    assert "status?search=a&sort=who&order=asc" in links, "words from A, figures from the highest"


def test_pages_and_filters_work_by_links_and_a_form_alone(feed: Feed) -> None:
    query = PageQuery(limit=3, offset=3, connections_offset=5)
    elements = Elements(page(feed, query))
    offsets = [a["data-offset"] for a in elements.all("a") if "data-offset" in a]
    assert offsets == ["0", "6", "0", "10"]
    (form,) = elements.all("form")
    assert (form["method"], form["action"], form["role"]) == ("get", "status", "search")
    assert {one["name"] for one in [*elements.all("input"), *elements.all("select")]} == {
        "search",
        "quota",
        "throttled",
    }


def test_an_address_says_only_what_is_not_the_default() -> None:
    assert address(PageQuery()) == "status"
    query = PageQuery(search="a b&c", throttled=True, order=Direction.ASC)
    assert address(query) == "status?search=a+b%26c&throttled=true&order=asc"
    assert address(query, search="", throttled=False) == "status?order=asc"


def test_a_buckets_reasons_are_shown_when_they_are_asked_for(feed: Feed) -> None:
    html = page(feed)
    assert re.search(r'<section id="why"[^>]* hidden>', html)
    row = r'data-key="([0-9a-f]{16})"><th[^>]*><a[^>]*><bdi>user alice</bdi></a></th><td>produce<'
    (key,) = re.findall(row, html)
    html = page(feed, PageQuery(bucket=key, search="ali"))
    assert '<h2 id="why-title" tabindex="-1">Why: <bdi>user alice</bdi>, producer_byte_rate</h2>' in html
    assert "until the debt is paid" in html
    assert 'id="close" href="status?search=ali"' in html
    assert Elements(html)


@pytest.mark.parametrize(
    ("plan", "expected"),
    [
        (Plan(state="none"), "admin.status.plan names no folder"),
        (Plan(state="unusable", name="x", problem="is <no> plan"), "is &lt;no&gt; plan"),
        (PLAN, '<td class="num">+50 %</td>'),
    ],
)
def test_the_last_plan_is_shown_or_why_it_is_not(feed: Feed, plan: Plan, expected: str) -> None:
    assert expected in page(feed, plan=plan)


def test_a_proxy_without_traffic_has_a_page_too() -> None:
    html = page(Feed(), plan=Plan(state="none"))
    assert html.count(">Nothing to show.<") == 4
    assert Elements(html)


def test_a_curve_is_broken_where_nothing_was_seen_and_tells_its_figures() -> None:
    points = [None] * (POINTS - 7) + [0.5, None, None, None, 1.25, None, 1.0]
    delays = [None] * (POINTS - 7) + [0.0, None, None, None, 80.0, None, 0.0]
    drawn = curve(History(interval_s=5.0, utilisation=points, delay_ms=delays))
    assert 'aria-label="Last 10 minutes: at most 125 % of the limit, in debt at 1 of 3 points"' in drawn
    (line,) = re.findall(r'class="line" d="([^"]*)"', drawn)
    assert (line.count("M"), line.count("L")) == (2, 1)
    (marks,) = re.findall(r'class="held" d="([^"]*)"', drawn)
    assert marks.count("M") == 1


def test_what_followers_are_behind_on_is_shown_with_its_end_and_found_by_topic() -> None:
    world, _ = a_move(400, 100, 5_000.0)
    world.replication.topic_names = {key_of(0, 0)[0]: HOSTILE[0], key_of(1, 1)[0]: "orders"}
    world.replication.move_ratio = 0.25
    followed = Feed(replication=world.replication)
    html = page(followed)
    assert "Leader 1 · limit 5.00 kB/s · " in html
    assert "25.0 % of all partitions are being moved" in html
    assert f"<bdi>{escape(HOSTILE[0])}</bdi>" in html
    assert "1 to 2 of 2 partitions" in html
    found = asyncio.run(StatusDesk(StatusOptions(), followed.desk.sources).replication(Query(search="ORD")))
    (row,) = found.rows
    assert (row.topic, row.partition, row.follower, found.matching) == ("orders", 1, 2, 1)
    (follower,) = found.followers
    assert row.left_bytes is not None
    assert follower.left_bytes is not None
    assert 0 < row.left_bytes < follower.left_bytes, "a follower is told whole, whatever is asked for"
    assert row.ends_in_s is not None
    assert follower.ends_in_s is not None
    assert 0.0 < row.ends_in_s < follower.ends_in_s


def test_rules_and_quotas_may_be_broken_at_their_underscores_and_who_it_is_has_room(feed: Feed) -> None:
    """Else a bucket of `default_user_default_client` pushes its curve out of a page of 1,400 px, and who it
    is stands there in pieces."""
    html = page(feed)
    assert "default_<wbr>user" in html
    assert "controller_<wbr>mutation" in html
    script, style = ((FOLDER / f"status_{name}").read_text() for name in ("cells.js", "page.css"))
    assert 'h("wbr")' in script
    assert "tbody th.name { min-width: 14em; }" in style
    assert not re.search(r"^tbody th \{[^}]*min-width", style, re.M), "passed over: .name goes before it"
