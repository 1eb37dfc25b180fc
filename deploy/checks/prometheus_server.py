"""A real Prometheus on loopback: scrapes one target, has the alert rules, is asked by its HTTP API."""

from __future__ import annotations

import json
import shutil
import tempfile
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final, Self

import check_paths  # noqa: F401  before what lies there
import yaml
from check_tools import ROOT, Failed

from testkit.processes.guarded_process import GuardedProcess, log_tail
from testkit.processes.ports import LOOPBACK, free_port

JOB: Final = "sluice"
INTERVAL_S: Final = 2
_WITHIN_S: Final = 120.0
_RULES: Final = ROOT / "deploy" / "prometheus" / "alerts.yaml"


class PrometheusServer:
    """Scrapes every INTERVAL_S; ends with the `with` block."""

    def __init__(self, program: Path, target_port: int, sample_limit: int) -> None:
        """`sample_limit`: a scrape with more samples fails."""
        self._folder = Path(tempfile.mkdtemp(prefix="sluice-prometheus-"))
        self._port = free_port()
        config = {
            "global": dict.fromkeys(
                ("scrape_interval", "scrape_timeout", "evaluation_interval"), f"{INTERVAL_S}s"
            ),
            "rule_files": [str(_RULES)],
            "scrape_configs": [
                {
                    "job_name": JOB,
                    "sample_limit": sample_limit,
                    "static_configs": [{"targets": [f"{LOOPBACK}:{target_port}"]}],
                }
            ],
        }
        file = self._folder / "prometheus.yml"
        file.write_text(yaml.safe_dump(config), encoding="utf-8")
        self._log = self._folder / "log"
        self._process = GuardedProcess(
            [
                program,
                f"--config.file={file}",
                f"--storage.tsdb.path={self._folder / 'data'}",
                f"--web.listen-address={LOOPBACK}:{self._port}",
                "--log.level=warn",
            ],
            output=self._log,
            remove_on_death=self._folder,
        )

    def __enter__(self) -> Self:
        try:
            self.wait_until(lambda: self.is_up() is True, "a first scrape")
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End it and remove what it wrote."""
        self._process.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def ask(self, path: str, **parameters: str) -> Any:
        """What the API answers, its `data`. Raises Failed with what it says if that is an error."""
        url = f"http://{LOOPBACK}:{self._port}/api/v1/{path}?{urllib.parse.urlencode(parameters)}"
        try:
            with urllib.request.urlopen(url, timeout=30) as answer:
                return json.load(answer)["data"]
        except urllib.error.HTTPError as error:
            if error.code == HTTPStatus.SERVICE_UNAVAILABLE:  # it starts
                raise
            raise Failed(f"Prometheus: {path} {parameters}: {error.read().decode()}") from error

    def values(self, expr: str) -> list[tuple[dict[str, str], float]]:
        """(labels, value) of everything that an expression gives now."""
        found = self.ask("query", query=expr)["result"]
        return [(each["metric"], float(each["value"][1])) for each in found]

    def is_up(self) -> bool | None:
        """Whether the last scrape was fine; None: there was none, or no answer."""
        try:
            found = self.values("up")
        except OSError:
            return None
        return found[0][1] == 1.0 if found else None

    def await_scrapes(self, count: int = 3) -> None:
        """Wait until so many scrapes have begun after now."""
        since_s = time.time()
        newest = f'max_over_time(timestamp(up{{job="{JOB}"}})[1m:1s])'
        self.wait_until(
            lambda: any(value > since_s + count * INTERVAL_S for _, value in self.values(newest)),
            f"{count} more scrapes",
        )

    def wait_until(self, seen: Callable[[], bool], what: str) -> None:
        """Raises Failed with the log's tail if it is not so in two minutes."""
        deadline_s = time.monotonic() + _WITHIN_S
        while not seen():
            if self._process.exit_code() is not None or time.monotonic() > deadline_s:
                raise Failed(f"Prometheus: no {what}: {log_tail(self._log)}")
            time.sleep(0.2)
