#!/usr/bin/env python3
"""The nightly job's report in a real Chromium: readable by everybody, small, without script or other files.

What is looked at: axe-core's rules in both colour schemes, with details open; 320 px; that names of clients
which are markup stay text; that nothing is loaded; how long a report of 20,000 limits takes to open.
Screenshots lie in .cache/deploy/report_page.
"""

# debian: chromium
# limit: 300 s

from __future__ import annotations

import json
import sys
import time
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]

from axe_core import axe_source, violations  # noqa: E402
from chromium import BrowserError, Chromium, Page  # noqa: E402
from pictures import take_pictures  # noqa: E402

from sluice.recalibration.job import Plan  # noqa: E402
from sluice.recalibration.log.reader import LogFiles  # noqa: E402
from sluice.recalibration.policy.confidence import DayUse, confidence  # noqa: E402
from sluice.recalibration.policy.plan import Expected, PlanEntry  # noqa: E402
from sluice.recalibration.policy.policy import Reason  # noqa: E402
from sluice.recalibration.policy.settings import PolicySettings  # noqa: E402
from sluice.recalibration.report.files import write_outputs  # noqa: E402

WORK: Final = ROOT / ".cache" / "deploy" / "report_page"
CACHE: Final = ROOT / ".cache" / "deploy"
DAY: Final = date(2026, 11, 20)
MANY: Final = 20_000
OPEN: Final = "[...document.querySelectorAll('details')].slice(0, 4).forEach((one) => { one.open = true }); 0"
"""the calendars and three entities: axe-core looks at each element of a plot"""
MAX_OPEN_S: Final = 20.0
"""a second or two on a machine that has nothing else to do"""
KEYS: Final = ("producer_byte_rate", "consumer_byte_rate", "request_percentage", "producer_ids_rate")
HOSTILE: Final = (
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(2)>',
    "</table><style>body{display:none}</style>",
    "שלום עולם",
    "a-name-without-a-space-" * 12,
)
SHOPS: Final = ("orders", "payments", "search", "billing", "reports", "audit", "mailer", "stock")
"""users that a picture for the documentation can show"""
SETTINGS: Final = PolicySettings()


def entry(number: int, user: str) -> PlanEntry:
    """With four weeks of days, some of them throttled; every reason comes."""
    current = 10_000.0 * (1 + number % 97)
    days = tuple(
        DayUse(
            age,
            current * (0.4 + 0.1 * ((age + number) % 7)),
            (age + number) % 5 > 0,
            0.2 * ((age + number) % 5 == 0),
            86_400.0,
        )
        for age in range(28)
    )
    reason = list(Reason)[number % len(Reason)]
    return PlanEntry(
        key=KEYS[number % len(KEYS)],
        entity=json.dumps({"client-id": "app", "user": user}),
        current=current,
        proposed=current * (1.0, 1.4, 0.8, 2.0)[number % 4],
        wanted=current * 2.5,
        reason=reason,
        needs_review=reason is Reason.GUARD,
        confidence=confidence(days, SETTINGS),
        proxies=1 + number % 3,
        pooled_demand=3 * current,
        throttled_share=days[0].throttled_share,
        days=days,
        expected=Expected(120.0, 10.0, 900.0, 40.0) if days[0].throttled_share else Expected(),
    )


def write(name: str, count: int, hostile: tuple[str, ...] = HOSTILE) -> Path:
    users = [*hostile, *(f"user-{number}" for number in range(count - len(hostile)))]
    entries = [entry(number, user) for number, user in enumerate(users)]
    entries[0] = replace(entries[0], needs_review=True)
    plan = Plan(
        DAY,
        entries,
        LogFiles(["a.parquet"] * 1_440, {f"{hostile[0]}/damaged.parquet": "cut off"}),
        room={"producer_byte_rate": 0.9 * sum(each.proposed for each in entries if each.key == KEYS[0])},
        calendars={json.dumps({"user": hostile[0]}): ["sat 01:00–05:00 Europe/Berlin: producer_byte_rate"]},
    )
    folder = WORK / name
    folder.mkdir(parents=True, exist_ok=True)
    write_outputs(plan, folder)
    return folder / "report.html"


def ensure(fine: object, what: str) -> None:
    if not fine:
        raise BrowserError(what)


def check_everybody(page: Page, report: Path) -> None:
    """axe-core in both schemes, some details open; then a narrow screen."""
    source = axe_source(CACHE)
    found: list[str] = []
    for scheme in ("light", "dark"):
        page.look(1180, 900, scheme)
        page.go(report.as_uri())
        page.run(OPEN)
        found += [f"{scheme}: {one}" for one in violations(page, source)]
        page.screenshot(WORK / f"{scheme}.png")
    page.look(320, 800, "light")
    page.go(report.as_uri())
    page.run(OPEN)
    page.screenshot(WORK / "narrow.png", whole=False)
    width = page.run("document.documentElement.scrollWidth")
    ensure(width <= 320, f"at 320 px the page is {width} px wide")
    ensure(not found, "axe-core:\n" + "\n".join(found[:20]))


def check_names(page: Page, report: Path) -> None:
    """As text, whatever they are."""
    page.look(1180, 900, "light")
    page.go(report.as_uri())
    shown = page.run("document.body.textContent")
    for name in HOSTILE:
        ensure(name in shown, f"not shown: {name[:60]}")
    made = page.run("document.querySelectorAll('script, img, link, iframe').length")
    ensure(made == 0, f"{made} elements that load or run something")
    ensure(page.said("Page.javascriptDialogOpening") == [], "an alert opened")


def check_silence(page: Page) -> None:
    """Nothing but the file was asked for."""
    asked = {one["request"]["url"] for one in page.said("Network.requestWillBeSent")}
    foreign = [one for one in asked if not one.startswith("file://")]
    ensure(not foreign, f"asked elsewhere: {foreign}")


def check_size(page: Page, report: Path) -> None:
    begun_s = time.monotonic()
    page.go(report.as_uri())
    height = page.run("document.documentElement.scrollHeight")
    took_s = time.monotonic() - begun_s
    size = report.stat().st_size
    print(
        f"{MANY:,} limits: {size / 1e6:.1f} MB, opened within {took_s:.1f} s, {height:,} px high", flush=True
    )
    ensure(took_s < MAX_OPEN_S, f"took {took_s:.1f} s to open")


def main() -> None:
    small, large = write("small", 16), write("large", MANY)
    pictured = write("pictured", len(SHOPS), SHOPS)
    with Chromium() as browser:
        page = browser.page()
        try:
            check_everybody(page, small)
            check_names(page, small)
            check_size(page, large)
            check_silence(page)
            take_pictures(page, pictured.as_uri(), "report")
        except BrowserError as error:
            page.screenshot(WORK / "failed.png", whole=False)
            sys.exit(str(error))
    print(f"fine; pictures in {WORK.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
