"""Files and ports of the configuration that the proxy can use in its pod are taken; those that it cannot are
in mistakes.yaml."""

from __future__ import annotations

from typing import Any

import pytest
from helm_charts import Charts, of_kind


def listener(name: str, port: int, first: int, **more: str) -> dict[str, Any]:
    gateway = {"bootstrap_upstreams": ["kafka:9092"], "first_broker_port": first}
    return {"name": name, "bind_port": port, "gateway": gateway, **more}


TWO_HOSTS = [listener("clients", 9092, 9100), listener("others", 9308, 9200, bind_host="::1")]


@pytest.mark.parametrize(
    "proxy",
    [
        {"config": {"quotas": {"file": "/etc/sluice/quotas/limits.yaml"}}, "existingQuotasConfigMap": "mine"},
        {
            "config": {"quotas": {"file": "/etc/sluice/files/limits/quotas.yaml"}},
            "files": [{"name": "limits", "configMap": "mine"}],
        },
        {
            "config": {"quotas": {"file": "/var/lib/sluice/limits/quotas.yaml"}},
            "state": {"persistentVolumeClaim": "mine"},
        },
        {"config": {"admin": {"socket": "/tmp/sluice.sock"}}},
        {"config": {"admin": {"socket": "/dev/shm/sluice.sock"}}},
        {"config": {"access_log": {"directory": {"path": "/var/lib/sluice/"}}}},
        {
            "config": {"access_log": {"directory": {"path": "/var/log/sluice/here"}}},
            "accessLog": {"persistentVolumeClaim": "mine"},
        },
        {
            "config": {
                "access_log": {"journal_folder": "/var/lib/sluice/j", "topic": {"bootstrap": ["kafka:9092"]}}
            }
        },
        {
            "config": {"producer_ids": {"snapshot_file": "/var/lib/sluice/ids/a"}},
            "state": {"persistentVolumeClaim": "mine"},
        },
        {"config": {"admin": {"bind_host": "10.0.0.1"}, "listeners": TWO_HOSTS}},
    ],
)
def test_what_the_pod_has_is_taken(charts: Charts, proxy: dict[str, Any]) -> None:
    assert of_kind(charts.render("sluice", {"proxy": proxy}), "Deployment")
