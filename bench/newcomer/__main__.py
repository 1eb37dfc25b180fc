"""From nothing to the name of a throttled tenant, by the documentation's own commands, within ten minutes.

    make newcomer                      the same as: python -m bench.newcomer

What it does is what the pages say, block by block, with a stopwatch: install Sluice as the quick start does;
the quick start itself, two real brokers with a Sluice before each; then the example `tenants`, whose traffic
is throttled. Who that is it takes from a label alone: the one that the alert SluiceThrottledLong would carry
(its expression, evaluated by two scrapes), which goes as it stands into the commands of *Read an alert* and
into the status page's search. All have to name the same tenant. Last line: JSON; exit code 1 if something
failed, or took more than ten minutes, 3 if it could not be tried (no network to install from).
"""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
import threading
import time
import urllib.parse
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from prometheus_client.parser import text_string_to_metric_families

from bench.lib.results import print_last_line
from testkit.examples.proxy import ExampleProxy
from testkit.examples.readme import perf_command, run_perf
from testkit.examples.stage import Stage, stage_of
from testkit.kafka.dist import ensure_kafka
from testkit.repository.docs_blocks import Block, blocks_of
from testkit.repository.page_world import ROOT, own_network, page_environment

LIMIT_S: Final = 600.0
SCRAPES_APART_S: Final = 5.0
ALERT: Final = "SluiceThrottledLong"
METRIC: Final = "sluice_delayed_seconds_total"
THRESHOLD: Final = 0.1
"""of the alert's expression; a test compares them"""
TENANT: Final = "team-a"
NOT_TRIED: Final = 3
_EXPLAIN: Final = re.compile(r"sluice quotas explain .*--config FILE")


class Failed(Exception):
    """A step did not do what its page says."""


class Steps:
    """What was done, and how long it took."""

    def __init__(self) -> None:
        self.took_s: dict[str, float] = {}
        self._begun_s = time.monotonic()

    def step(self, name: str, page: str, work: Callable[[], str]) -> str:
        """Do it, and tell it. `page`: where it is said. Raises Failed."""
        begun_s = time.monotonic()
        said = work()
        now_s = time.monotonic()
        self.took_s[name] = round(now_s - begun_s, 1)
        print(f"[{now_s - self._begun_s:5.0f} s] {name} ({page}): {said}", flush=True)
        return said

    @property
    def total_s(self) -> float:
        """Seconds since the begin."""
        return round(time.monotonic() - self._begun_s, 1)


def shell_blocks(page: str) -> list[Block]:
    """The blocks of commands of a page."""
    text = (ROOT / page).read_text(encoding="utf-8")
    return [block for block in blocks_of(text) if block.language == "sh"]


def ran(command: list[str], environment: dict[str, str], folder: Path = ROOT, within_s: float = 300.0) -> str:
    """What it printed. Raises Failed."""
    done = subprocess.run(
        command, env=environment, cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, text=True,
        timeout=within_s, check=False,
    )  # fmt: skip
    if done.returncode:
        raise Failed(f"{shlex.join(command)[:200]} ended with {done.returncode}:\n{done.stderr[-1500:]}")
    return done.stdout


def install(environment: dict[str, str]) -> str:
    """The block of the quick start that installs, as it stands."""
    (block,) = [block for block in shell_blocks("docs/quick-start.md") if "pip install" in block.text]
    try:
        ran(["bash", "-e", "-c", block.text], environment)
    except Failed as error:
        print(error)
        print_last_line({"tried": False, "why": "Sluice could not be installed: is there a network?"})
        sys.exit(NOT_TRIED)
    return ran([str(sluice_of(environment)), "--version"], environment).splitlines()[0]


def sluice_of(environment: dict[str, str]) -> Path:
    """The command that was installed."""
    return Path(environment["HOME"], "sluice-env", "bin", "sluice")


def quick_start(environment: dict[str, str], folder: Path) -> str:
    """Every block of the page, and a client where it says so."""
    folder.mkdir()
    command = [*own_network(), sys.executable, "-m", "testkit.repository.page_run", str(folder)]
    said: dict[str, Any] = json.loads(ran(command, environment))
    used = said["used"]
    if used["consumed"] != 3_000 or used["failed"]:
        raise Failed(f"the quick start's clients: {used}")
    return f"two brokers, {used['consumed']:,} records through {' and '.join(used['addresses'])}"


def delayed_s(proxy: ExampleProxy) -> dict[tuple[str, str, str], float]:
    """(quota, user, client_id) → the counter that the alert looks at."""
    with urllib.request.urlopen(f"http://localhost:{proxy.admin_port}/metrics", timeout=10) as answer:
        text = answer.read().decode()
    return {
        (one.labels["quota"], one.labels["user"], one.labels["client_id"]): one.value
        for family in text_string_to_metric_families(text)
        for one in family.samples
        if one.name == METRIC
    }


def alert_label(proxy: ExampleProxy) -> str:
    """The label `user` of the one series that the alert's expression is true of. Raises Failed."""
    before = delayed_s(proxy)
    time.sleep(SCRAPES_APART_S)
    after = delayed_s(proxy)
    found = {
        key for key, value in after.items() if (value - before.get(key, 0.0)) / SCRAPES_APART_S > THRESHOLD
    }
    if len(found) != 1:
        raise Failed(f"{METRIC} is above {THRESHOLD} for {sorted(found)}")
    ((_, user, _),) = found
    return user


def top_of_the_alerts_page(label: str, config: Path, sluice: Path) -> list[str]:
    """The command of *Read an alert*, with the label in the place of alice, and this configuration."""
    lines = [line for block in shell_blocks("docs/read-an-alert.md") for line in block.text.splitlines()]
    commands = [shlex.split(line, comments=True) for line in lines]
    top = next(words for words in commands if words[:2] == ["sluice", "top"])
    words = [label if word == "alice" else word for word in top[1:]]
    return [str(sluice), *words, "--config", str(config)]


def named_by_top(label: str, config: Path, environment: dict[str, str]) -> tuple[str, str]:
    """(who, the command that it says explains further)."""
    command = top_of_the_alerts_page(label, config, sluice_of(environment))
    said = ran(command, {**environment, "COLUMNS": "200"})
    explain = _EXPLAIN.search(said)
    if f"tenant {TENANT}" not in said or explain is None:
        raise Failed(f"sluice top names nobody, or no way on:\n{said}")
    return f"tenant {TENANT}", explain[0]


def named_by_page(label: str, proxy: ExampleProxy) -> str:
    """Whom the status page and its API show for the label. Raises Failed."""
    asked = urllib.parse.urlencode({"search": label})
    base = f"http://localhost:{proxy.admin_port}"
    with urllib.request.urlopen(f"{base}/api/v1/principals?{asked}&throttled=true", timeout=10) as answer:
        who: set[str] = {row["who"] for row in json.load(answer)["rows"]}
    with urllib.request.urlopen(f"{base}/status?{asked}", timeout=10) as answer:
        page = answer.read().decode()
    if len(who) != 1 or f"<bdi>{min(who)}</bdi>" not in page:
        raise Failed(f"the status page shows {who}")
    return min(who)


def throttle_and_name(steps: Steps, stage: Stage, environment: dict[str, str]) -> dict[str, str]:
    """The example `tenants`: its traffic, and who it is by label, top, page and explain."""
    with stage.proxy("tenants") as proxy:
        config = proxy.folder / "sluice.yaml"

        def send(user: str) -> None:
            words = [
                word.replace("alice.properties", f"{user}.properties") for word in perf_command("tenants")
            ]
            folder = proxy.folder / user
            folder.mkdir()
            run_perf(stage.broker, words, proxy.first_bootstrap, folder, stage.certificates)

        threads = [threading.Thread(target=send, args=(user,)) for user in ("alice", "bob")]
        for thread in threads:
            thread.start()
            time.sleep(1.0)  # the topic is made by the first
        while sum(delayed_s(proxy).values()) == 0.0 and any(thread.is_alive() for thread in threads):
            time.sleep(0.2)
        label = steps.step("the alert's label", "deploy/prometheus", lambda: f"user={alert_label(proxy)}")
        label = label.removeprefix("user=")
        further = ""

        def top() -> str:
            nonlocal further
            who, further = named_by_top(label, config, environment)
            return who

        named = {"alert": label}
        named["status_page"] = steps.step(
            "status page", "docs/read-an-alert.md", lambda: named_by_page(label, proxy)
        )
        named["top"] = steps.step("sluice top", "docs/read-an-alert.md", top)
        words = shlex.split(further.replace("--config FILE", f"--config {config}"))
        said = ran([str(sluice_of(environment)), *words[1:]], environment)
        shared = re.search(r"producer_byte_rate: .*shared by (tenant '[^']+')", said)
        if shared is None:
            raise Failed(f"explain does not name the tenant:\n{said}")
        named["explain"] = steps.step("sluice quotas explain", "as top says", lambda: shared[1])
        for thread in threads:
            thread.join()
    return named


def main() -> None:
    """Play the newcomer, and end with the exit code."""
    steps = Steps()
    dist = ensure_kafka()
    with tempfile.TemporaryDirectory(prefix="sluice-newcomer-") as name:
        folder = Path(name)
        environment = page_environment(folder, dist)
        named: dict[str, str] = {}
        problem = ""
        try:
            steps.step("install", "docs/quick-start.md", lambda: install(environment))
            steps.step(
                "quick start", "docs/quick-start.md", lambda: quick_start(environment, folder / "page")
            )
            begun_s = time.monotonic()
            with stage_of(dist, folder) as stage:
                steps.took_s["the examples' broker"] = round(time.monotonic() - begun_s, 1)
                named = throttle_and_name(steps, stage, environment)
        except Failed as error:
            problem = str(error)
            print(problem)
    same = len(named) == 4 and all(TENANT in who for who in named.values())
    in_time = steps.total_s <= LIMIT_S
    print_last_line(
        {
            "total_s": steps.total_s, "within_10_minutes": in_time, "named_the_same": same, "named": named,
            "steps_s": steps.took_s, "problem": problem[:200],
        }
    )  # fmt: skip
    sys.exit(0 if same and in_time else 1)


if __name__ == "__main__":
    os.chdir(ROOT)
    main()
