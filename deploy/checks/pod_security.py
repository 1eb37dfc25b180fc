"""The pod-security profile *restricted* (with *baseline*, which it includes), field by field.

Source: Kubernetes' "Pod Security Standards", policy version 1.34. A rule has the name that it has there, so
that what is found says which one it breaks. Knows manifests as values; reads no files.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

Values = Mapping[str, Any]
VOLUMES: Final = {
    "configMap",
    "csi",
    "downwardAPI",
    "emptyDir",
    "ephemeral",
    "persistentVolumeClaim",
    "projected",
    "secret",
}
SYSCTLS: Final = {
    "kernel.shm_rmid_forced",
    "net.ipv4.ip_local_port_range",
    "net.ipv4.ip_local_reserved_ports",
    "net.ipv4.ip_unprivileged_port_start",
    "net.ipv4.ping_group_range",
    "net.ipv4.tcp_fin_timeout",
    "net.ipv4.tcp_keepalive_intvl",
    "net.ipv4.tcp_keepalive_probes",
    "net.ipv4.tcp_keepalive_time",
    "net.ipv4.tcp_rmem",
    "net.ipv4.tcp_syncookies",
    "net.ipv4.tcp_wmem",
}
SELINUX_TYPES: Final = {"", "container_t", "container_init_t", "container_kvm_t", "container_engine_t"}
_PROFILES: Final = {"RuntimeDefault", "Localhost"}
_PROBES: Final = ("startupProbe", "readinessProbe", "livenessProbe")


def pod_specs(manifest: Values) -> Iterator[tuple[str, Values]]:
    """(where, the pod's spec) of every pod that a manifest makes."""
    kind, spec = manifest.get("kind"), manifest.get("spec") or {}
    name = f"{kind} {manifest['metadata']['name']}"
    if kind == "Pod":
        yield name, spec
    elif kind == "CronJob":
        yield name, spec["jobTemplate"]["spec"]["template"]["spec"]
    elif kind in {"Deployment", "StatefulSet", "DaemonSet", "ReplicaSet", "Job"}:
        yield name, spec["template"]["spec"]


def containers_of(pod: Values) -> Iterator[tuple[str, Values]]:
    """(where, container) of all kinds of containers."""
    for kind in ("initContainers", "containers", "ephemeralContainers"):
        for container in pod.get(kind) or ():
            yield f"{kind}[{container['name']}]", container


def violations(pod: Values) -> list[str]:
    """`rule: field` of everything that *restricted* does not allow; empty: it would be admitted."""
    return [*_of_pod(pod), *_of_contexts(pod), *_of_containers(pod)]


def _of_pod(pod: Values) -> Iterator[str]:
    for field in ("hostNetwork", "hostPID", "hostIPC"):
        if pod.get(field):
            yield f"Host Namespaces: {field}"
    for volume in pod.get("volumes") or ():
        for kind in set(volume) - {"name"} - VOLUMES:
            rule = "HostPath Volumes" if kind == "hostPath" else "Volume Types"
            yield f"{rule}: volumes[{volume['name']}].{kind}"
    for sysctl in (pod.get("securityContext") or {}).get("sysctls") or ():
        if sysctl["name"] not in SYSCTLS:
            yield f"Sysctls: securityContext.sysctls[{sysctl['name']}]"


def _of_contexts(pod: Values) -> Iterator[str]:
    """What may stand in the pod's context, in a container's, or in both."""
    shared = pod.get("securityContext") or {}
    contexts = [("securityContext", shared)]
    for where, container in containers_of(pod):
        own = container.get("securityContext") or {}
        contexts.append((f"{where}.securityContext", own))
        if own.get("runAsNonRoot", shared.get("runAsNonRoot")) is not True:
            yield f"Running as Non-root: {where}.securityContext.runAsNonRoot"
        profile = own.get("seccompProfile") or shared.get("seccompProfile") or {}
        if profile.get("type") not in _PROFILES:
            yield f"Seccomp: {where}.securityContext.seccompProfile.type"
    for where, context in contexts:
        if context.get("runAsUser") == 0:
            yield f"Running as Non-root user: {where}.runAsUser"
        if (context.get("windowsOptions") or {}).get("hostProcess"):
            yield f"HostProcess: {where}.windowsOptions.hostProcess"
        profile = context.get("appArmorProfile")
        if profile is not None and profile.get("type") not in _PROFILES:
            yield f"AppArmor: {where}.appArmorProfile.type"
        selinux = context.get("seLinuxOptions") or {}
        if selinux.get("type", "") not in SELINUX_TYPES or selinux.get("user") or selinux.get("role"):
            yield f"SELinux: {where}.seLinuxOptions"


def _of_containers(pod: Values) -> Iterator[str]:
    for where, container in containers_of(pod):
        context = container.get("securityContext") or {}
        at = f"{where}.securityContext"
        if context.get("privileged"):
            yield f"Privileged Containers: {at}.privileged"
        if context.get("allowPrivilegeEscalation") is not False:
            yield f"Privilege Escalation: {at}.allowPrivilegeEscalation"
        capabilities = context.get("capabilities") or {}
        if "ALL" not in (capabilities.get("drop") or ()):
            yield f"Capabilities: {at}.capabilities.drop"
        if set(capabilities.get("add") or ()) - {"NET_BIND_SERVICE"}:
            yield f"Capabilities: {at}.capabilities.add"
        if context.get("procMount", "Default") != "Default":
            yield f"/proc Mount Type: {at}.procMount"
        for port in container.get("ports") or ():
            if port.get("hostPort"):
                yield f"Host Ports: {where}.ports[{port.get('name')}].hostPort"
        handlers = [(name, container.get(name) or {}) for name in _PROBES]
        handlers += [(f"lifecycle.{hook}", each) for hook, each in (container.get("lifecycle") or {}).items()]
        for name, handler in handlers:
            if any((handler.get(kind) or {}).get("host") for kind in ("httpGet", "tcpSocket")):
                yield f"Host Probes / Lifecycle Hooks: {where}.{name}.host"
