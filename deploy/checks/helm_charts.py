"""The charts, rendered by a real Helm: a copy of deploy/helm with its dependencies, asked for manifests.

Knows nothing of what is right in a manifest.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import yaml
from check_tools import ROOT, Failed, output_of

SOURCE: Final = ROOT / "deploy" / "helm"
CASES: Final = SOURCE / "tests" / "cases"
FOLDERS: Final = {
    "sluice": "sluice",
    "broker-sidecar": "examples/broker-sidecar",
    "application-sidecar": "examples/application-sidecar",
}
VERSIONS: Final = ("1.28", "1.31", "1.37")
"""of Kubernetes: one without native sidecars, one that most have, the newest"""
OPERATOR_APIS: Final = ("monitoring.coreos.com/v1/PodMonitor", "monitoring.coreos.com/v1/ServiceMonitor")
"""of the Prometheus operator"""
RELEASE, NAMESPACE = "quotas", "kafka"
_WITHIN_S: Final = 120
Manifest = dict[str, Any]
Values = Mapping[str, Any]


class Case(NamedTuple):
    """Values for a chart, with a name."""

    chart: str
    name: str
    files: tuple[Path, ...]

    def __str__(self) -> str:
        return f"{self.chart}:{self.name}"


def cases() -> Iterator[Case]:
    """The matrix: each chart with its defaults, with every file of its cases, and with the example values."""
    for chart in FOLDERS:
        yield Case(chart, "defaults", ())
        for path in sorted((CASES / chart).glob("*.yaml")):
            yield Case(chart, path.stem, (path,))
    yield Case("sluice", "strimzi", (SOURCE / "examples" / "strimzi.yaml",))


class Charts:
    """A place in which charts are whole. `refusal` is what Helm says when it renders nothing."""

    def __init__(self, helm: Path, folder: Path) -> None:
        self._helm = helm
        self._folder = folder / "helm"
        # Links are followed: the charts are what `helm package` would make of them.
        shutil.copytree(SOURCE, self._folder, ignore=shutil.ignore_patterns("charts", "Chart.lock"))
        for chart in FOLDERS.values():
            output_of(helm, "dependency", "build", self._folder / chart)
        self._rendered: dict[tuple[Case, str], list[Manifest]] = {}

    def of_case(self, case: Case, version: str) -> list[Manifest]:
        """What a case renders; each only once."""
        key = (case, version)
        if key not in self._rendered:
            self._rendered[key] = self.render(case.chart, version=version, files=case.files)
        return self._rendered[key]

    def render(
        self,
        chart: str,
        values: Values | None = None,
        *,
        version: str = "1.31",
        files: Sequence[Path] = (),
        apis: Sequence[str] = OPERATOR_APIS,
    ) -> list[Manifest]:
        """All manifests, in no particular order; `apis`: what the cluster knows besides its own. Raises
        Failed with what Helm says if it refuses."""
        done = self._template(chart, values or {}, version, files, apis)
        if done.returncode:
            raise Failed(f"{chart}: {done.stderr}")
        return [document for document in yaml.safe_load_all(done.stdout) if document is not None]

    def refusal(self, chart: str, values: Values, *, version: str = "1.31") -> str:
        """Why Helm refuses these values. Raises Failed if it does not."""
        done = self._template(chart, values, version, ())
        if done.returncode == 0:
            raise Failed(f"{chart}: rendered with {values}")
        return done.stderr

    def lint(self, case: Case) -> str:
        """What `helm lint --strict` says. Raises Failed if it finds something."""
        files = [f"--values={path}" for path in case.files]
        chart = self._folder / FOLDERS[case.chart]
        return output_of(self._helm, "lint", "--strict", "--kube-version=1.31.0", *files, chart)

    def _template(
        self, chart: str, values: Values, version: str, files: Sequence[Path], apis: Sequence[str] = ()
    ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [
                self._helm,
                "template",
                RELEASE,
                self._folder / FOLDERS[chart],
                f"--namespace={NAMESPACE}",
                f"--kube-version={version}.0",
                *(f"--api-versions={api}" for api in apis),
                *(f"--values={path}" for path in files),
                "--values=-",
            ],
            input=json.dumps(values),
            capture_output=True,
            text=True,
            timeout=_WITHIN_S,
            check=False,
        )


def of_kind(manifests: Sequence[Manifest], kind: str) -> list[Manifest]:
    """Those of a kind."""
    return [manifest for manifest in manifests if manifest["kind"] == kind]


def the(manifests: Sequence[Manifest], kind: str, name: str = "") -> Manifest:
    """The one of this kind, whose name ends so."""
    (found,) = [each for each in of_kind(manifests, kind) if each["metadata"]["name"].endswith(name)]
    return found
