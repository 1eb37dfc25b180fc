"""The section `admin` of the configuration: the admin port, its status page, and the admin socket.

docs/status-page.md explains the page and who may see it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Final

from pydantic import Field

from sluice.proxy.config.options import NO_BOOL, BindPort, File, Host, Options, Text

_LAST_PORT: Final = 65535


class StatusOptions(Options):
    """The status page (/status) and its JSON API (/api/v1), which only read: from this machine's loopback,
    or with a token."""

    enabled: bool = Field(default=True, description="Whether there are a status page and its API.")
    token_file: File | None = Field(
        default=None,
        description="Holds a token of at least 16 characters, with which both, and what `sluice top` asks "
        "for, may be asked for from elsewhere than loopback; if left out, they may not. Followed.",
    )
    token_on_loopback: bool = Field(
        default=False,
        description="true: the token is asked for on loopback too (a pod's containers share it).",
    )
    hosts: tuple[Text, ...] = Field(
        default=(),
        description="Names by which browsers may call the page without a token, besides localhost and "
        "addresses: one that is not listed may be another site's, made to lead here (DNS rebinding).",
    )
    plan: File | None = Field(
        default=None,
        description="Where the recalibration job puts its plans (the folder with LATEST), or a plan.json: "
        "the page shows the last one.",
    )
    interval_s: Annotated[float, Field(ge=1, le=60), NO_BOOL] = Field(
        default=5.0, description="Between two points of the page's curves, of which there are 120."
    )


class ProbesOptions(Options):
    """The port of /livez, /readyz and /startupz alone: whoever fills the admin port with connections keeps
    no probe from its answer."""

    bind_host: Host | None = Field(
        default=None, description="Address to listen on, which the kubelet must reach; if left out, admin's."
    )
    bind_port: BindPort | None = Field(
        default=None,
        description="Port to listen on; 0 lets the system choose one; if left out, the one behind admin's.",
    )


class AdminOptions(Options):
    """The port of /metrics, /top, /status, /livez, /readyz and /startupz, through which nothing can be
    changed; and a socket for the machine's own administrator."""

    bind_host: Host = Field(
        default="0.0.0.0", description="Address to listen on; Prometheus scrapes from outside the pod."
    )
    bind_port: BindPort = Field(default=9308, description="Port to listen on; 0 lets the system choose one.")
    socket: File | None = Field(
        default=None,
        description="Path of a Unix socket (mode 0600) for `sluice top` and `sluice configs`; whoever may "
        "open it may change quotas that are kept in a topic. One that a process left behind is replaced.",
    )
    status: StatusOptions = Field(
        default=StatusOptions(), description="The status page and its API, which only read."
    )
    probes: ProbesOptions = Field(
        default=ProbesOptions(), description="A port of their own for the orchestrator's probes."
    )

    @property
    def probe_address(self) -> tuple[str, int]:
        """Host and port of the probes; port 0: the system chooses."""
        port = self.probes.bind_port
        if port is None:
            port = self.bind_port and (self.bind_port + 1 if self.bind_port < _LAST_PORT else _LAST_PORT - 1)
        return self.probes.bind_host or self.bind_host, port


def admin_contradictions(options: AdminOptions) -> Iterator[tuple[tuple[str | int, ...], str]]:
    """What is fine by itself but not together: (path of the key to change, what is wrong and the remedy)."""
    if options.status.token_on_loopback and options.status.token_file is None:
        yield ("admin", "status", "token_file"), "missing; it is required where token_on_loopback is true"
