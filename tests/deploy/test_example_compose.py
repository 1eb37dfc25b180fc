"""The compose example: images pinned, mounts there, ports that fit, the project's dashboard and alerts."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Final

import pytest
import yaml
from dockerfile_steps import ImageConfig, needed, read_stages

from sluice.proxy.config.config import Config
from sluice.proxy.config.file import config_of
from sluice.proxy.runtime.open_files import files_of
from sluice.quotas.files.load import load_quotas
from sluice.quotas.files.yaml_lines import parse_yaml
from testkit.examples.compose import FILE, broker_properties, mounts, published, services
from testkit.kafka.lock import CURRENT

ROOT: Final = Path(__file__).resolve().parents[2]
FOLDER: Final = FILE.parent
PINNED: Final = re.compile(r"[\w./-]+:v?\d+\.\d+\.\d+")
OURS: Final = "sluice"
LOOPBACK: Final = "127.0.0.1"


def load(path: Path) -> Any:
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def configuration() -> Config:
    path = FOLDER / "sluice/sluice.yaml"
    return config_of(parse_yaml(path.read_text(encoding="utf-8"), str(path)), str(path), {})


def mounted(name: str) -> dict[str, Path]:
    """Where in the service's container → which file or folder of the repository."""
    return {mount.target: mount.source for mount in mounts(services()[name])}


def test_every_image_is_of_one_version_and_ours_is_built_of_the_repository() -> None:
    found = services()
    images = {name: service["image"] for name, service in found.items()}
    assert images.pop(OURS) == OURS
    assert [image for image in images.values() if not PINNED.fullmatch(image)] == []
    assert images["kafka"] == f"apache/kafka:{CURRENT.version}"
    assert (FOLDER / found[OURS]["build"] / "Dockerfile").resolve() == ROOT / "Dockerfile"


def test_all_that_is_mounted_is_there_and_nothing_of_it_can_be_written() -> None:
    for name, service in services().items():
        for mount in mounts(service):
            assert mount.source.exists(), f"{name}: {mount.source}"
            assert mount.options == "ro", f"{name}: {mount.target}"


def test_named_volumes_are_declared_and_none_is_left_over() -> None:
    used = {
        entry.split(":")[0]
        for service in services().values()
        for entry in service.get("volumes", ())
        if not entry.startswith(".")
    }
    assert used == set(load(FILE)["volumes"])


def test_sluice_stands_where_the_broker_leads_clients_and_dials_where_it_listens() -> None:
    properties, (listener,) = broker_properties(), configuration().listeners
    told = dict(re.findall(r"(\w+)://([\w.]+:\d+)", properties["advertised.listeners"]))
    own = dict(re.findall(r"(\w+)://([\w.]+:\d+)", properties["listeners"]))
    assert told["CLIENTS"] == f"localhost:{listener.bind_port}"
    assert own["CLIENTS"] == f"{listener.upstream_host}:{listener.upstream_port}"
    assert {host.split(":")[0] for host in own.values()} == {LOOPBACK}, "nobody gets past Sluice"
    assert services()[OURS]["network_mode"] == "service:kafka"
    assert set(services()[OURS]) & {"ports", "networks"} == set(), "they are the other container's"


def test_what_is_published_is_what_listens_there_and_on_loopback_alone() -> None:
    config = configuration()
    (listener,) = config.listeners
    listens = {"kafka": {listener.bind_port, config.admin.bind_port}, "prometheus": {9090}, "grafana": {3000}}
    for name, ports in listens.items():
        found = published(services()[name])
        assert {port.target for port in found} == ports, name
        assert all(port.port == port.target and port.address == LOOPBACK for port in found), name


def test_sluice_runs_without_privileges_and_with_room_for_its_connections() -> None:
    service = services()[OURS]
    assert (service["read_only"], service["cap_drop"]) == (True, ["ALL"])
    assert service["security_opt"] == ["no-new-privileges"]
    assert service["ulimits"]["nofile"] >= files_of(10_000), "limits.max_connections' default"
    assert int(service["stop_grace_period"].removesuffix("s")) > configuration().drain.deadline_s


def test_sluice_finds_its_files_where_the_image_looks_for_them() -> None:
    config = ImageConfig()
    for stage in needed(read_stages(ROOT / "Dockerfile"), "proxy"):
        config = config.from_here()
        for step in stage.steps:
            config.apply(step)
    looked_for = Path(config.env["SLUICE_CONFIG"])
    folder = mounted(OURS)[str(looked_for.parent)]
    assert (folder / looked_for.name).is_file()
    assert load_quotas(folder / str(configuration().quotas.file)).entries


def test_prometheus_scrapes_sluice_with_the_projects_alert_rules() -> None:
    config = load(mounted("prometheus")["/etc/prometheus/prometheus.yml"])
    (job,) = config["scrape_configs"]
    (group,) = job["static_configs"]
    assert group["targets"] == [f"kafka:{configuration().admin.bind_port}"]
    (rules,) = config["rule_files"]
    assert mounted("prometheus")[f"/etc/prometheus/{rules}"] == ROOT / "deploy/prometheus/alerts.yaml"
    assert "--config.file=/etc/prometheus/prometheus.yml" in services()["prometheus"]["command"]


def test_grafana_is_given_the_projects_dashboard_and_a_prometheus_to_ask() -> None:
    files = mounted("grafana")
    (source,) = load(files["/etc/grafana/provisioning/datasources/sluice.yaml"])["datasources"]
    assert (source["type"], source["isDefault"]) == ("prometheus", True)
    assert source["url"] == f"http://prometheus:{published(services()['prometheus'])[0].target}"
    (provider,) = load(files["/etc/grafana/provisioning/dashboards/sluice.yaml"])["providers"]
    dashboard = f"{provider['options']['path']}/sluice.json"
    assert files[dashboard] == ROOT / "deploy/grafana/sluice.json"
    environment = services()["grafana"]["environment"]
    assert environment["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"] == dashboard


@pytest.mark.parametrize("image", ["apache/kafka", "apache/kafka:latest", "grafana/grafana:12", "a:v3"])
def test_an_image_that_may_be_another_tomorrow_is_seen(image: str) -> None:
    assert not PINNED.fullmatch(image)
