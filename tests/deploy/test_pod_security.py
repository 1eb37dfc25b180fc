"""What the check of manifests takes for *restricted* is that, rule by rule."""

from __future__ import annotations

import json
from typing import Any, Final

import pytest
from pod_security import pod_specs, violations

CONTEXT: Final = {
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "runAsNonRoot": True,
    "seccompProfile": {"type": "RuntimeDefault"},
}


def pod() -> dict[str, Any]:
    """One that is admitted."""
    container = {"name": "one", "securityContext": CONTEXT, "ports": [{"name": "a", "containerPort": 1}]}
    spec = {
        "initContainers": [{**container, "name": "first"}],
        "containers": [container],
        "volumes": [{"name": "tmp", "emptyDir": {}}, {"name": "keys", "secret": {"secretName": "a"}}],
    }
    copied: dict[str, Any] = json.loads(json.dumps(spec))  # nothing in it is shared
    return copied


def test_a_pod_that_says_all_that_is_asked_for_is_admitted() -> None:
    assert violations(pod()) == []


def test_the_pods_context_says_it_for_its_containers() -> None:
    spec = pod()
    for container in (*spec["initContainers"], *spec["containers"]):
        container["securityContext"] = {
            key: value
            for key, value in container["securityContext"].items()
            if key not in {"runAsNonRoot", "seccompProfile"}
        }
    assert violations(spec) != []
    spec["securityContext"] = {"runAsNonRoot": True, "seccompProfile": {"type": "Localhost"}}
    assert violations(spec) == []


def change(spec: dict[str, Any], path: str, value: object) -> None:
    """Set, below the pod or its one container (`c.`), what a path of keys leads to; None takes it out."""
    at: Any = spec
    if path.startswith("c."):
        at, path = spec["containers"][0], path.removeprefix("c.")
    *keys, last = path.split(".")
    for key in keys:
        at = at.setdefault(key, {})
    if value is None:
        del at[last]
    else:
        at[last] = value


@pytest.mark.parametrize(
    ("path", "value", "found"),
    [
        ("hostNetwork", True, "Host Namespaces: hostNetwork"),
        ("hostPID", True, "Host Namespaces: hostPID"),
        ("hostIPC", True, "Host Namespaces: hostIPC"),
        ("volumes", [{"name": "v", "hostPath": {"path": "/"}}], "HostPath Volumes: volumes[v].hostPath"),
        ("volumes", [{"name": "v", "nfs": {}}], "Volume Types: volumes[v].nfs"),
        (
            "securityContext.sysctls",
            [{"name": "kernel.msgmax"}],
            "Sysctls: securityContext.sysctls[kernel.msgmax]",
        ),
        ("securityContext.runAsUser", 0, "Running as Non-root user: securityContext.runAsUser"),
        (
            "securityContext.windowsOptions",
            {"hostProcess": True},
            "HostProcess: securityContext.windowsOptions.hostProcess",
        ),
        ("securityContext.seLinuxOptions", {"user": "root"}, "SELinux: securityContext.seLinuxOptions"),
        ("securityContext.seLinuxOptions", {"type": "spc_t"}, "SELinux: securityContext.seLinuxOptions"),
        (
            "c.securityContext.appArmorProfile",
            {"type": "Unconfined"},
            "AppArmor: ONE.securityContext.appArmorProfile.type",
        ),
        ("c.securityContext.runAsNonRoot", None, "Running as Non-root: ONE.securityContext.runAsNonRoot"),
        ("c.securityContext.runAsUser", 0, "Running as Non-root user: ONE.securityContext.runAsUser"),
        (
            "c.securityContext.seccompProfile",
            {"type": "Unconfined"},
            "Seccomp: ONE.securityContext.seccompProfile.type",
        ),
        ("c.securityContext.privileged", True, "Privileged Containers: ONE.securityContext.privileged"),
        (
            "c.securityContext.allowPrivilegeEscalation",
            None,
            "Privilege Escalation: ONE.securityContext.allowPrivilegeEscalation",
        ),
        (
            "c.securityContext.capabilities",
            {"drop": ["NET_RAW"]},
            "Capabilities: ONE.securityContext.capabilities.drop",
        ),
        (
            "c.securityContext.capabilities",
            {"drop": ["ALL"], "add": ["SYS_TIME"]},
            "Capabilities: ONE.securityContext.capabilities.add",
        ),
        ("c.securityContext.procMount", "Unmasked", "/proc Mount Type: ONE.securityContext.procMount"),
        ("c.ports", [{"name": "a", "hostPort": 80}], "Host Ports: ONE.ports[a].hostPort"),
        (
            "c.livenessProbe",
            {"httpGet": {"host": "x"}},
            "Host Probes / Lifecycle Hooks: ONE.livenessProbe.host",
        ),
        (
            "c.lifecycle",
            {"preStop": {"tcpSocket": {"host": "x"}}},
            "Host Probes / Lifecycle Hooks: ONE.lifecycle.preStop.host",
        ),
    ],
)
def test_each_rule_is_seen_to_be_broken(path: str, value: object, found: str) -> None:
    spec = pod()
    change(spec, path, value)
    assert violations(spec) == [found.replace("ONE", "containers[one]")]


def test_init_containers_are_looked_at_as_others_are() -> None:
    spec = pod()
    spec["initContainers"][0]["securityContext"]["privileged"] = True
    assert violations(spec) == ["Privileged Containers: initContainers[first].securityContext.privileged"]


@pytest.mark.parametrize(
    ("kind", "spec"),
    [
        ("Pod", {"containers": []}),
        ("StatefulSet", {"template": {"spec": {"containers": []}}}),
        ("CronJob", {"jobTemplate": {"spec": {"template": {"spec": {"containers": []}}}}}),
    ],
)
def test_the_pod_in_a_manifest_is_found(kind: str, spec: dict[str, Any]) -> None:
    manifest = {"kind": kind, "metadata": {"name": "a"}, "spec": spec}
    assert list(pod_specs(manifest)) == [(f"{kind} a", {"containers": []})]


def test_a_manifest_without_pods_has_none() -> None:
    assert list(pod_specs({"kind": "Service", "metadata": {"name": "a"}, "spec": {}})) == []
