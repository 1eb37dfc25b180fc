"""Drawings of the documentation → docs/images: where Sluice stands, and a sawtooth beside a flat line.

    python -m tools.pictures [--check]

The lines are the samples that `make bench-evenness` left in bench/results, the drawing is drawn here. Both
are SVG without a font or a script of their own, and follow the reader's light or dark scheme.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parents[1]
IMAGES: Final = ROOT / "docs" / "images"
EVENNESS: Final = ROOT / "bench" / "results" / "evenness.json"
_STYLE: Final = """\
<style>
  text { font: 14px system-ui, sans-serif; fill: #1f2933; }
  .ground { fill: #ffffff; }
  .small { font-size: 12px; fill: #52606d; }
  .strong { font-weight: 600; }
  .box { fill: #f5f7fa; stroke: #7b8794; }
  .ours { fill: #dbeafe; stroke: #1d4ed8; }
  .way { stroke: #52606d; fill: none; marker-end: url(#tip); }
  .tip { fill: #52606d; }
  .axis { stroke: #9aa5b1; fill: none; }
  .limit { stroke: #b91c1c; stroke-dasharray: 5 4; fill: none; }
  .broker { stroke: #c2410c; fill: #c2410c33; }
  .sluice { stroke: #1d4ed8; fill: #1d4ed833; }
  @media (prefers-color-scheme: dark) {
    .ground { fill: #12171d; }
    text { fill: #e4e7eb; }
    .small { fill: #9aa5b1; }
    .box { fill: #1f2933; stroke: #7b8794; }
    .ours { fill: #1e3a5f; stroke: #60a5fa; }
    .way { stroke: #9aa5b1; }
    .tip { fill: #9aa5b1; }
    .limit { stroke: #f87171; }
    .broker { stroke: #fb923c; fill: #fb923c33; }
    .sluice { stroke: #60a5fa; fill: #60a5fa33; }
  }
</style>
<defs><marker id="tip" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="7" markerHeight="7" orient="auto">
<path class="tip" d="M0 0 10 5 0 10z"/></marker></defs>
"""


def _svg(width: int, height: int, title: str, body: Iterator[str]) -> str:
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img">\n'
    ground = f'<rect class="ground" width="{width}" height="{height}"/>\n'
    return f"{head}<title>{escape(title)}</title>\n{_STYLE}{ground}" + "\n".join(body) + "\n</svg>\n"


def _text(x: float, y: float, words: str, kind: str = "", anchor: str = "start") -> str:
    return f'<text x="{x:g}" y="{y:g}" class="{kind}" text-anchor="{anchor}">{escape(words)}</text>'


def _box(x: float, y: float, width: float, height: float, lines: Sequence[str], kind: str = "box") -> str:
    """A box with lines in its middle, the first one strong."""
    shape = f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="6" class="{kind}"/>'
    top = y + height / 2 + 5 - 9 * (len(lines) - 1)
    texts = [
        _text(x + width / 2, top + 18 * number, line, "small" if number else "strong", "middle")
        for number, line in enumerate(lines)
    ]
    return "\n".join((shape, *texts))


def _way(x1: float, y1: float, x2: float, y2: float) -> str:
    return f'<path class="way" d="M{x1:g} {y1:g} L{x2:g} {y2:g}"/>'


# Where it stands --------------------------------------------------------------------------------------------


def architecture() -> str:
    """Both modes, and what goes in and out of one process."""
    return _svg(
        860, 470, "Sluice beside each broker, in front of a cluster, and what it reads and tells", _modes()
    )


def _modes() -> Iterator[str]:
    yield _text(
        10,
        22,
        "mode broker: one process beside each broker; a quota holds per broker, as Kafka's own",
        "strong",
    )
    yield _box(10, 40, 130, 50, ("clients", "unchanged"))
    for row, number in ((0, 0), (1, 1)):
        y = 36 + row * 62
        yield f'<rect x="250" y="{y:g}" width="470" height="54" rx="8" class="axis"/>'
        yield _text(728, y + 32, f"host or pod {number}", "small")
        yield _box(264, y + 6, 170, 42, ("Sluice", "advertised to clients"), "ours")
        yield _box(540, y + 6, 166, 42, (f"Kafka broker {number}", "on loopback"))
        yield _way(434, y + 27, 538, y + 27)
        yield _way(140, 65 + row * 8, 262, y + 27)
    yield _text(10, 196, "mode gateway: one process, or a few, in front of a cluster", "strong")
    yield _box(10, 222, 130, 50, ("clients", "unchanged"))
    yield _box(264, 216, 170, 62, ("Sluice", "one host, a port", "for each broker"), "ours")
    yield _way(140, 247, 262, 247)
    for number in range(3):
        y = 204 + number * 32
        yield _box(540, y, 166, 26, (f"Kafka broker {number}",))
        yield _way(434, 247, 538, y + 13)
    yield _text(10, 330, "one process", "strong")
    yield _box(324, 350, 150, 92, ("Sluice", "holds, mutes, tells", "throttle_time_ms"), "ours")
    for number, (what, name) in enumerate(
        (
            ("limits", "quotas.yaml, or a topic"),
            ("configuration", "sluice.yaml"),
            ("asks", "sluice top, explain, configs"),
        )
    ):
        y = 352 + number * 34
        yield _text(10, y + 13, what, "strong")
        yield _text(126, y + 13, name, "small")
        yield _way(300, y + 9, 322, y + 9)
    for number, (what, name) in enumerate(
        (
            ("/metrics", "limit, use, throttle, rule, by entity"),
            ("/status", "the status page and its API"),
            ("log", "throttling_began, quota_changed, …"),
            ("access log", "Parquet → sluice recalibrate → a plan"),
        )
    ):
        y = 346 + number * 26
        yield _way(474, y + 9, 496, y + 9)
        yield _text(504, y + 13, what, "strong")
        yield _text(594, y + 13, name, "small")


# A sawtooth beside a flat line ------------------------------------------------------------------------------


def sawtooth(results: Mapping[str, Any]) -> str:
    """The bytes that passed in each second, of one producer that sends as fast as it can, on both sides."""
    title = "Bytes per second of one flat-out producer: the broker's own quota in waves, Sluice's a flat line"
    return _svg(860, 330, title, _panels(results))


def _panels(results: Mapping[str, Any]) -> Iterator[str]:
    quota = float(results["quota_bytes_per_s"])
    sides = results["setups"]["produce"]
    top = max(max(sides[side]["bytes_per_s"]) for side in ("native", "sluice"))
    for left, side, kind, name in (
        (60.0, "native", "broker", "the broker's own quota"),
        (480.0, "sluice", "sluice", "Sluice, in front of the same broker"),
    ):
        samples: list[float] = sides[side]["bytes_per_s"]
        yield _text(left, 24, name, "strong")
        stall_s, p99_s = sides[side]["longest_gap_s"], sides[side]["latency_s"]["p99"]
        seen = f"longest stall {stall_s:.1f} s, p99 latency {p99_s:.1f} s"
        yield _text(left, 44, seen, "small")
        yield from _plot(left, samples, top, quota, kind)
    yield _text(
        60,
        318,
        f"One Java producer, flat out, quota {quota / 1e6:g} MB/s; MB in each second. make bench-evenness",
        "small",
    )


def _plot(left: float, samples: Sequence[float], top: float, quota: float, kind: str) -> Iterator[str]:
    width, height, floor = 350.0, 210.0, 275.0

    def at(number: float, value: float) -> str:
        return f"{left + width * number / (len(samples) - 1):.1f} {floor - height * value / top:.1f}"

    line = " L".join(at(number, value) for number, value in enumerate(samples))
    last = len(samples) - 1
    yield f'<path class="{kind}" d="M{at(0, 0)} L{line} L{at(last, 0)}z"/>'
    yield f'<path class="axis" d="M{at(0, top)} L{at(0, 0)} L{at(last, 0)}"/>'
    yield f'<path class="limit" d="M{at(0, quota)} L{at(last, quota)}"/>'
    for value in range(0, int(top / 1e6) + 1, 2):
        yield _text(left - 8, floor - height * value * 1e6 / top + 4, str(value), "small", "end")
    for second in range(0, len(samples), 20):
        yield _text(left + width * second / last, floor + 18, f"{second} s", "small", "middle")


def drawings() -> dict[str, str]:
    """Every file's name → what is to be in it."""
    results: dict[str, Any] = json.loads(EVENNESS.read_text(encoding="utf-8"))
    return {"architecture.svg": architecture(), "sawtooth.svg": sawtooth(results)}


def main() -> None:
    """Writes the files; with --check tells by exit code 1 which are not as they would be."""
    is_check = "--check" in sys.argv[1:]
    stale = []
    for name, text in drawings().items():
        file = IMAGES / name
        if not file.is_file() or file.read_text(encoding="utf-8") != text:
            stale.append(name)
            if not is_check:
                IMAGES.mkdir(parents=True, exist_ok=True)
                file.write_text(text, encoding="utf-8")
    print(f"docs/images: {', '.join(stale) or 'nothing'} {'differs' if is_check else 'written'}")
    if is_check and stale:
        sys.exit("run `make pictures`")


if __name__ == "__main__":
    main()
