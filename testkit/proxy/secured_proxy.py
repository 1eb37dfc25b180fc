"""LocalProxy with any options of a listener: TLS on both sides, PROXY headers, logins, limits; no process."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

from sluice.proxy.assembly import Assembled, assemble
from sluice.proxy.config.limits import LimitsOptions
from sluice.proxy.config.listener import ListenerOptions, contradictions
from sluice.proxy.connection.limits import ConnectionLimits
from sluice.proxy.listener.circuit import Circuits
from sluice.proxy.listener.security import load_security
from sluice.proxy.session.policy import SessionPolicy
from sluice.quotas.limits.limits import QuotaLimits
from testkit.processes.ports import LOOPBACK
from testkit.proxy.data_paths import current
from testkit.proxy.local_proxy import LocalProxy


class SecuredProxy(LocalProxy):
    """`listener`: its options as in the configuration file, which must not contradict each other."""

    def __init__(
        self,
        upstream_port: int,
        limits: QuotaLimits | None = None,
        *,
        listener: Mapping[str, Any],
        connections: LimitsOptions | None = None,
        dial_timeout_s: float = 5.0,
        dial_total_s: float = 20.0,
    ) -> None:
        super().__init__(upstream_port, limits, dial_timeout_s=dial_timeout_s, dial_total_s=dial_total_s)
        upstream = {"upstream_host": LOOPBACK, "upstream_port": upstream_port}
        self._options = ListenerOptions.model_validate(
            {
                "name": "test",
                "bind_host": LOOPBACK,
                "bind_port": 0,
                **({} if "gateway" in listener else upstream),
                **listener,
            }
        )
        assert not list(contradictions(self._options, "gateway" if "gateway" in listener else "broker"))
        self._limits = connections or LimitsOptions()
        self.security = load_security(self._options)
        self.assembled: Assembled

    async def __aenter__(self) -> Self:
        limits = ConnectionLimits(
            max_connections=self._limits.max_connections,
            max_connections_per_address=self._limits.max_connections_per_ip,
            max_connections_per_user=self._limits.max_connections_per_user,
        )
        worker = self._new_worker(limits)
        options = self._options
        self.assembled = assemble(
            worker,
            options,
            self.shared,
            SessionPolicy(authentication_required=options.has_sasl, takes_logins=options.takes_logins),
            Circuits(),
            self.security,
            limits=self._limits,
            upstream=self._upstream_options,
            path=current(),
        )
        self.listener = self.assembled.listener
        self.listener.start()
        return self

    async def __aexit__(self, failed: type[BaseException] | None, *exc_info: object) -> None:
        await super().__aexit__(failed, *exc_info)


def credentials_file(folder: Path, text: str) -> str:
    """`text` as a credentials file; returns where it is."""
    file = folder / "logins.yaml"
    file.write_text(text)
    return str(file)
