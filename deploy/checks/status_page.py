#!/usr/bin/env python3
"""The status page in a real Chromium, of a proxy under load: live, readable by everybody, nothing runs in it.

A real Kafka, Sluice before it, producers whose client ids are markup. What is looked at: that it is kept
current; keyboard and focus; without script; axe-core's rules in both colour schemes; 320 px; a foreign host
name that leads here; that nothing is loaded from elsewhere. Screenshots lie in .cache/deploy/status_page.
"""

# debian: chromium
# limit: 600 s

from __future__ import annotations

import asyncio
import json
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from typing import Any, Final

from axe_core import axe_source, violations
from chromium import BrowserError, Chromium, Page
from pictures import take_pictures
from status_load import HOSTILE, ROOT, proxy_under_load

from testkit.oracles.replica_model import key_of
from testkit.oracles.replica_world import a_move
from testkit.processes.ports import LOOPBACK
from testkit.proxy.status_feed import Feed, served

WORK: Final = ROOT / ".cache" / "deploy" / "status_page"
CACHE: Final = ROOT / ".cache" / "deploy"
EVIL: Final = "evil.example"
PICTURED: Final = "shop"
"""part of the names of clients that a picture can show"""
SIZES: Final = {"wide": (1440, 900), "narrow": (390, 844)}
STEADY: Final = (0, 1, 3, 7)
"""columns of principals that stay the same: who, quota, limit, rule"""
SCHEMES: Final = ("light", "dark")


def ensure(condition: object, what: str) -> None:
    """Raise BrowserError unless the condition holds."""
    if not condition:
        raise BrowserError(what)


def check_live(page: Page, address: str) -> None:
    """Kept current by itself; what clients call themselves is text; only its own origin is asked."""
    page.go(address)
    rows = "document.querySelectorAll('#buckets tbody tr').length"
    ensure(page.run(rows) >= 8, f"only {page.run(rows)} buckets")
    first = page.run("document.getElementById('at').textContent")
    page.until_true(f"document.getElementById('at').textContent !== {json.dumps(first)}")
    page.until_true("document.querySelectorAll('#buckets .tag.bad').length >= 2")
    page.until_true("document.querySelectorAll('#events tbody th').length >= 2")
    page.until_true("document.querySelectorAll('#clients tbody th').length >= 5")
    page.until_true("document.querySelectorAll('#buckets .curve').length >= 5")
    page.until_true("document.querySelectorAll('#ids tbody th').length >= 1")
    ensure(page.run("document.querySelectorAll('#changes tbody th').length") == 3, "no plan")
    shown = page.run("document.body.innerText")
    for name in HOSTILE:
        ensure(name.replace("\u202e", "\\u202e") in shown, f"{name!r} is not shown as text")
    ensure(page.run("document.querySelectorAll('img').length") == 0, "a name became an element")
    ensure(page.run("document.querySelectorAll('script').length") == 1, "a name became a script")


def check_keyboard(page: Page) -> None:
    """By keys alone: skip link, pause, sort, filter, reasons and back; focus stays while rows are renewed."""
    active = "document.activeElement"
    page.run("document.activeElement.blur(); window.scrollTo(0, 0); 0")
    page.press("Tab")
    ensure(page.run(f"{active}.className") == "skip", "the skip link is not the first")
    page.press("Tab")
    ensure(page.run(f"{active}.id") == "pause", "the pause button is not the second")
    page.press(" ")
    page.until_true("document.getElementById('told').textContent === 'Updates are paused.'")
    at = page.run("document.getElementById('at').textContent")
    time.sleep(2.5)
    ensure(page.run("document.getElementById('at').textContent") == at, "it is not paused")
    page.press(" ")
    page.until_true(f"document.getElementById('at').textContent !== {json.dumps(at)}")
    page.run("document.querySelector('[data-sort=who] a').focus()")
    page.press("Enter")
    page.until_true("document.querySelector('[data-sort=who]').ariaSort === 'ascending'")
    page.press("Enter")
    page.until_true("document.querySelector('[data-sort=who]').ariaSort === 'descending'")
    page.press("Enter")
    page.until_true("document.querySelector('[data-sort=who]').ariaSort === 'ascending'")
    cells = page.run("[...document.querySelectorAll('#buckets tbody bdi')].map((one) => one.textContent)")
    names = [cell.casefold() for cell in cells]
    ensure(names == sorted(names), f"not sorted: {names}")
    ensure(page.run(f"{active}.closest('th').dataset.sort") == "who", "sorting lost the focus")
    page.run("document.getElementById('search').focus()")
    page.type("ORDERS")
    page.until_true("document.querySelectorAll('#buckets tbody tr').length <= 2")
    page.until_true("document.getElementById('told').textContent.includes('1 to ')")
    ensure(page.run("location.search").startswith("?search=ORDERS"), "the address does not say the filter")
    page.run("document.querySelector('#buckets tbody a').focus()")
    page.press("Enter")
    page.until_true(f"{active}.id === 'why-title'")
    ensure("orders" in page.run("document.querySelector('.reasons').innerText"), "no reasons")
    time.sleep(2.5)
    ensure(page.run(f"{active}.id") == "why-title", "an update took the focus away")
    page.run("document.getElementById('close').focus()")
    page.press("Enter")
    page.until_true("document.getElementById('why').hidden")
    page.until_true(f"{active}.closest('#buckets') !== null")
    page.click("#clear")
    page.until_true("document.querySelectorAll('#buckets tbody tr').length >= 8")


def shape(page: Page, tables: Sequence[str] = ("buckets", "changes")) -> list[Any]:
    """What is the same from one look to the next: of buckets, who is shown, with quota, rule and limit."""
    rows = page.run(
        "[...document.querySelectorAll('tbody tr')].map((row) => [row.closest('table').id, row.dataset.key,"
        "[...row.cells].map((cell) => cell.outerHTML)])"
    )
    return sorted(
        [table, key, [cells[at] for at in STEADY] if table == "buckets" else cells]
        for table, key, cells in rows
        if table in tables
    )


def check_without_script(page: Page, address: str) -> None:
    """As it is served: the same rows, a form and links that work."""
    page.script(enabled=True)
    page.go(f"{address}?sort=who&order=asc")
    page.until_true("document.getElementById('pause').hidden === false")
    time.sleep(2.5)
    with_script = shape(page)
    page.script(enabled=False)
    page.go(f"{address}?sort=who&order=asc")
    ensure(page.run("document.getElementById('pause').hidden"), "script ran")
    without = shape(page)
    if without != with_script:
        different = [(a, b) for a, b in zip(with_script, without, strict=False) if a != b]
        raise BrowserError(f"server and script do not make the same: {str(different[:1])[:2000]}")
    page.run("document.getElementById('search').focus()")
    page.type("orders")
    page.press("Enter")
    page.until_true("location.search.includes('search=orders')")
    page.until_true("[1, 2].includes(document.querySelectorAll('#buckets tbody a').length)")
    page.click("#buckets tbody a")
    page.until_true("document.getElementById('why-title') !== null")
    ensure(
        "debt" in page.run("document.querySelector('.reasons').innerText")
        or "tokens" in page.run("document.querySelector('.reasons').innerText"),
        "no reasons",
    )
    page.script(enabled=True)


def check_everybody(page: Page, address: str) -> None:
    """axe-core in both schemes and sizes, with a bucket's reasons open; 320 px; pictures of all of it."""
    axe = axe_source(CACHE)
    page.go(f"{address}?search=orders")
    page.until_true("document.querySelectorAll('#buckets tbody a').length > 0")
    page.click("#buckets tbody a")
    page.until_true("document.getElementById('why-title') !== null")
    bucket = page.run("new URLSearchParams(location.search).get('bucket')")
    found = []
    for scheme in SCHEMES:
        for size, (width, height) in SIZES.items():
            page.look(width, height, scheme)
            page.go(f"{address}?bucket={bucket}")
            page.until_true("document.querySelectorAll('#why .curve').length === 1")
            page.run("document.getElementById('pause').click()")
            found += [f"{scheme}, {size}: {one}" for one in violations(page, axe)]
            page.screenshot(WORK / f"{scheme}-{size}.png")
    page.look(*SIZES["wide"], "light")
    page.look(320, 800, "light")
    page.go(address)
    width = page.run("document.documentElement.scrollWidth")
    ensure(width <= 320, f"at 320 px the page is {width} px wide")
    page.screenshot(WORK / "light-320.png", whole=False)
    page.look(*SIZES["wide"], "light", forced_colors=True)
    page.go(address)
    page.screenshot(WORK / "forced-colors.png", whole=False)
    if found:
        raise BrowserError("axe-core:\n" + "\n".join(found))
    print(f"axe-core: nothing found; pictures in {WORK.relative_to(ROOT)}", flush=True)


@contextmanager
def followers_that_catch_up() -> Iterator[str]:
    """The page's address of a proxy whose followers are models: what is left stays as it is."""
    world, _ = a_move(400, 100, 5_000.0)
    world.replication.topic_names = {key_of(0, 0)[0]: HOSTILE[0], key_of(1, 1)[0]: "orders"}
    begun: Future[tuple[int, asyncio.AbstractEventLoop, asyncio.Event]] = Future()

    async def serve() -> None:
        over = asyncio.Event()
        async with served(Feed(replication=world.replication)) as server:
            begun.set_result((server.port, asyncio.get_running_loop(), over))
            await over.wait()

    thread = threading.Thread(target=asyncio.run, args=(serve(),))
    thread.start()
    port, loop, over = begun.result(10.0)
    try:
        yield f"http://{LOOPBACK}:{port}/status"
    finally:
        loop.call_soon_threadsafe(over.set)
        thread.join()


def check_replication(page: Page, address: str) -> None:
    """What is left and when it ends, the same with script and without."""
    tables = ("followers", "replicas")
    page.look(*SIZES["wide"], "light")
    page.go(address)
    page.until_true("document.getElementById('pause').hidden === false")
    time.sleep(2.5)
    with_script = shape(page, tables)
    ensure([name for name, *_ in with_script] == ["followers", "replicas", "replicas"], "not all is shown")
    ensure(page.run("document.getElementById('told').textContent") == "", "the script tells of a trouble")
    violating = violations(page, axe_source(CACHE))
    ensure(not violating, f"axe-core: {violating}")
    page.run("document.getElementById('replication').scrollIntoView()")
    page.screenshot(WORK / "replication.png", whole=False)
    page.script(enabled=False)
    page.go(address)
    without = shape(page, tables)
    page.script(enabled=True)
    ensure(without == with_script, f"server and script do not make the same: {with_script} {without}"[:3000])


def take_it(page: Page, address: str) -> None:
    """The page as people meet it, for the documentation: those whose name has `shop`, and why one waits."""
    page.look(*SIZES["wide"], "light")
    page.go(f"{address}?search={PICTURED}&throttled=true")
    page.until_true("document.querySelectorAll('#buckets tbody a').length > 0")
    page.click("#buckets tbody a")
    page.until_true("document.getElementById('why-title') !== null")
    bucket = page.run("new URLSearchParams(location.search).get('bucket')")
    asked = f"{address}?search={PICTURED}&bucket={bucket}"
    curves = "document.querySelectorAll('#buckets .curve').length >= 3"
    take_pictures(page, asked, "status", until=curves, before="window.scrollTo(0, 0)")
    why = "document.getElementById('why').scrollIntoView(); 0"
    take_pictures(page, asked, "status-why", until=curves, before=why)


def check_rebinding(page: Page, port: int) -> None:
    """A foreign name that leads to this machine is told nothing."""
    page.go(f"http://{EVIL}:{port}/status")
    shown = page.run("document.body.innerText")
    ensure("Unknown host name" in shown and "orders" not in shown, f"under another name: {shown[:300]}")
    page.go(f"http://{EVIL}:{port}/api/v1/principals")
    shown = page.run("document.body.innerText")
    ensure('"status":403' in shown and "orders" not in shown, f"the API answers: {shown[:300]}")


def check_silence(page: Page, port: int) -> None:
    """Nobody complained, nothing popped up, nothing was asked of anybody else."""
    ensure(page.said("Page.javascriptDialogOpening") == [], "an alert opened")
    thrown = page.said("Runtime.exceptionThrown")
    ensure(not thrown, f"the script failed: {str(thrown)[:1000]}")
    issues = [one for one in page.said("Audits.issueAdded") if "contentSecurityPolicy" in str(one)]
    ensure(not issues, f"the policy was broken: {str(issues)[:1000]}")
    asked = {one["request"]["url"] for one in page.said("Network.requestWillBeSent")}
    foreign = [
        one for one in asked if not one.startswith((f"http://{LOOPBACK}:{port}/", "data:", f"http://{EVIL}:"))
    ]
    ensure(not foreign, f"asked elsewhere: {foreign}")


def main() -> None:
    WORK.mkdir(parents=True, exist_ok=True)
    with (
        Chromium(f"--host-resolver-rules=MAP {EVIL} {LOOPBACK}") as browser,
        proxy_under_load(WORK / "plans") as sluice,
        followers_that_catch_up() as followers,
    ):
        address = f"http://{LOOPBACK}:{sluice.admin_port}/status"
        page = browser.page()
        page.look(*SIZES["wide"])
        checks: tuple[tuple[str, Callable[[], None]], ...] = (
            ("live", lambda: check_live(page, address)),
            ("keyboard", lambda: check_keyboard(page)),
            ("without script", lambda: check_without_script(page, address)),
            ("for everybody", lambda: check_everybody(page, address)),
            ("nothing from elsewhere", lambda: check_silence(page, sluice.admin_port)),
            ("replication", lambda: check_replication(page, followers)),
            ("pictures", lambda: take_it(page, address)),
            ("another host's name", lambda: check_rebinding(page, sluice.admin_port)),
        )
        for name, check in checks:
            try:
                check()
            except BrowserError as error:
                with suppress(BrowserError):  # a page that is still loading has no size
                    page.screenshot(WORK / "failed.png")
                sys.exit(f"{name}: {error}")
            print(f"{name}: fine", flush=True)


if __name__ == "__main__":
    main()
