"""Whatever the charts render, for three Kubernetes versions, is valid, restricted and whole."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import kubernetes_validate
import pytest
from check_tools import CACHE, ROOT, go_build
from helm_charts import VERSIONS, Case, Charts, Manifest, cases, of_kind
from pod_security import containers_of, pod_specs, violations

from testkit.peers.certificates import CertificateAuthority

ALL: Final = list(cases())
OPERATORS: Final = "monitoring.coreos.com/v1"
SLUICE: Final = Path(sys.executable).with_name("sluice")
ETC, STATE, LOG = "/etc/sluice", "/var/lib/sluice", "/var/log/sluice"
every_case = pytest.mark.parametrize("case", ALL, ids=str)
every_version = pytest.mark.parametrize("version", VERSIONS)


@pytest.fixture(scope="session")
def operator_types() -> Path:
    """The program that knows the Prometheus operator's own types."""
    return go_build(ROOT / "deploy" / "checks" / "operator_types", CACHE / "bin")


@every_version
@every_case
def test_every_manifest_keeps_to_the_schema_of_its_kind(charts: Charts, case: Case, version: str) -> None:
    manifests = [each for each in charts.of_case(case, version) if each["apiVersion"] != OPERATORS]
    assert manifests
    for manifest in manifests:
        kubernetes_validate.validate(manifest, version, strict=True)


@every_case
def test_every_manifest_for_the_prometheus_operator_has_its_types(
    charts: Charts, case: Case, operator_types: Path
) -> None:
    manifests = [each for each in charts.of_case(case, VERSIONS[-1]) if each["apiVersion"] == OPERATORS]
    lines = "\n".join(map(json.dumps, manifests))
    done = subprocess.run([operator_types], input=lines, capture_output=True, text=True, check=False)
    assert done.stdout == ""
    assert done.returncode == 0


def test_a_manifest_that_the_operator_would_not_take_is_seen(operator_types: Path) -> None:
    wrong = {
        "apiVersion": OPERATORS,
        "kind": "PodMonitor",
        "metadata": {"name": "a"},
        "spec": {"selectors": {}},
    }
    done = subprocess.run(
        [operator_types], input=json.dumps(wrong), capture_output=True, text=True, check=False
    )
    assert "selectors" in done.stdout
    assert done.returncode == 1


@every_version
@every_case
def test_every_pod_is_admitted_by_the_profile_restricted(charts: Charts, case: Case, version: str) -> None:
    broken = {
        where: found
        for manifest in charts.of_case(case, version)
        for where, pod in pod_specs(manifest)
        if (found := violations(pod))
    }
    assert broken == {}


@every_case
def test_roots_are_read_only_and_resources_are_said_for_every_container(charts: Charts, case: Case) -> None:
    for manifest in charts.of_case(case, VERSIONS[-1]):
        for where, pod in pod_specs(manifest):
            assert pod["automountServiceAccountToken"] is False, where
            for at, container in containers_of(pod):
                assert container["securityContext"]["readOnlyRootFilesystem"] is True, (where, at)
                assert container["resources"]["requests"], (where, at)
                assert container["resources"]["limits"]["memory"], (where, at)


@every_case
def test_secrets_come_as_files_and_files_as_folders(charts: Charts, case: Case) -> None:
    for manifest in charts.of_case(case, VERSIONS[-1]):
        assert manifest["kind"] != "Secret"
        for _, pod in pod_specs(manifest):
            for _, container in containers_of(pod):
                assert not container.get("envFrom")
                assert not [each for each in container.get("env", ()) if "valueFrom" in each]
                assert not [each for each in container.get("volumeMounts", ()) if "subPath" in each]


@every_version
@every_case
def test_every_mount_has_its_volume_and_every_volume_a_mount(
    charts: Charts, case: Case, version: str
) -> None:
    for manifest in charts.of_case(case, version):
        claims = (manifest.get("spec") or {}).get("volumeClaimTemplates", ())
        for where, pod in pod_specs(manifest):
            volumes = {volume["name"] for volume in pod["volumes"]}
            volumes |= {claim["metadata"]["name"] for claim in claims}
            mounted = [
                mount["name"]
                for _, container in containers_of(pod)
                for mount in container.get("volumeMounts", ())
            ]
            assert set(mounted) == volumes, where
            assert len(volumes) == len(pod["volumes"]) + len(claims), where


@every_case
def test_every_config_map_of_ours_that_is_mounted_is_rendered(charts: Charts, case: Case) -> None:
    manifests = charts.of_case(case, VERSIONS[-1])
    rendered = {each["metadata"]["name"] for each in of_kind(manifests, "ConfigMap")}
    assert {name for name in mounted_config_maps(manifests) if "sluice" in name} <= rendered | {
        "kafka-sluice-quotas"  # which the case says that somebody else has
    }


def mounted_config_maps(manifests: list[Manifest]) -> Iterator[str]:
    for manifest in manifests:
        for _, pod in pod_specs(manifest):
            for volume in pod["volumes"]:
                if "configMap" in volume:
                    yield volume["configMap"]["name"]


@every_case
def test_every_selector_finds_pods_and_every_port_is_one_of_them(charts: Charts, case: Case) -> None:
    manifests = charts.of_case(case, VERSIONS[-1])
    pods = [
        (manifest["spec"]["template"]["metadata"]["labels"], pod)
        for manifest in manifests
        if manifest["kind"] in {"Deployment", "StatefulSet"}
        for _, pod in pod_specs(manifest)
    ]
    for manifest in manifests:
        spec = manifest.get("spec") or {}
        selector = {
            "Service": lambda spec: spec["selector"],
            "PodMonitor": lambda spec: spec["selector"]["matchLabels"],
            "PodDisruptionBudget": lambda spec: spec["selector"]["matchLabels"],
            "NetworkPolicy": lambda spec: spec["podSelector"]["matchLabels"],
            "Deployment": lambda spec: spec["selector"]["matchLabels"],
            "StatefulSet": lambda spec: spec["selector"]["matchLabels"],
        }.get(manifest["kind"])
        if selector is None:
            continue
        found = [pod for labels, pod in pods if selector(spec).items() <= labels.items()]
        assert found, manifest["kind"]
        named = {
            port["name"] for pod in found for _, each in containers_of(pod) for port in each.get("ports", ())
        }
        asked = [port["targetPort"] for port in spec.get("ports", ())]
        asked += [endpoint["port"] for endpoint in spec.get("podMetricsEndpoints", ())]
        assert {port for port in asked if isinstance(port, str)} <= named, manifest["kind"]


@every_case
def test_no_two_manifests_have_one_name(charts: Charts, case: Case) -> None:
    names = [(each["kind"], each["metadata"]["name"]) for each in charts.of_case(case, VERSIONS[-1])]
    assert len(names) == len(set(names))
    assert all(each["metadata"]["namespace"] == "kafka" for each in charts.of_case(case, VERSIONS[-1]))


@every_case
def test_the_configuration_is_one_that_the_proxy_takes(charts: Charts, case: Case, tmp_path: Path) -> None:
    manifests = charts.of_case(case, VERSIONS[-1])
    configs = [each for each in of_kind(manifests, "ConfigMap") if "sluice.yaml" in each["data"]]
    assert bool(configs) == (case.name != "monitoring-only")
    for config in configs:
        checked = check_configuration(manifests, config, tmp_path)
        assert checked.returncode == 0, checked.stderr + checked.stdout


def check_configuration(
    manifests: list[Manifest], config: Manifest, folder: Path
) -> subprocess.CompletedProcess[str]:
    """`sluice check` over a ConfigMap, with everything that it names in its place below a folder."""
    text: str = config["data"]["sluice.yaml"]
    authority = CertificateAuthority()
    identity = authority.server("kafka.example.com")
    logins = {"users": {"alice": {"password": "a"}}, "service": {"username": "s", "password": "b"}}
    made = {
        ".crt": identity.certificate_pem,
        ".key": identity.key_pem(),
        "ca.crt": authority.certificate_pem,
        ".yaml": json.dumps(logins).encode(),
    }
    for path in re.findall(rf"{ETC}/files/([\w./-]+)", text):
        content = [value for ending, value in made.items() if path.endswith(ending)][-1]
        write(folder / "etc" / "files" / path, content)
    quotas = [each for each in of_kind(manifests, "ConfigMap") if "quotas.yaml" in each["data"]]
    limits = quotas[0]["data"]["quotas.yaml"] if quotas else "quotas: []\n"
    write(folder / "etc" / "quotas" / "quotas.yaml", limits.encode())
    for place, name in ((ETC, "etc"), (STATE, "state"), (LOG, "log")):
        (folder / name).mkdir(exist_ok=True)
        text = text.replace(place, str(folder / name))
    file = folder / "etc" / "config" / "sluice.yaml"
    write(file, text.encode())
    environment = {key: value for key, value in os.environ.items() if not key.startswith("SLUICE_")}
    return subprocess.run(
        [SLUICE, "check", file],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env=environment,
    )


def write(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    path.chmod(0o600)


def test_a_configuration_with_a_mistake_is_not_taken(charts: Charts, tmp_path: Path) -> None:
    manifests: list[Any] = charts.render("sluice")
    (config,) = [each for each in of_kind(manifests, "ConfigMap") if "sluice.yaml" in each["data"]]
    config["data"]["sluice.yaml"] += "pace: {}\n"
    checked = check_configuration(manifests, config, tmp_path)
    assert checked.returncode == 2
    assert "pace" in checked.stderr + checked.stdout


@every_case
def test_helm_lint_finds_nothing(charts: Charts, case: Case) -> None:
    assert "0 chart(s) failed" in charts.lint(case)
