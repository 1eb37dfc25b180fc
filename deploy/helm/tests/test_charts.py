"""What the charts make of their values: life cycle, reloads, ports, monitoring, the nightly job; refusals."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any, Final

import pytest
import typer
import yaml
from check_tools import ROOT, prometheus_tool
from helm_charts import CASES, Charts, Manifest, of_kind, the
from pod_security import pod_specs

from sluice.proxy.config.admin import AdminOptions
from sluice.recalibration.cli import recalibrate
from sluice.recalibration.settings_file import parse_settings

OTHER_PORT: Final = {
    "name": "clients",
    "bind_port": 9093,
    "gateway": {"bootstrap_upstreams": ["kafka:9092"], "first_broker_port": 9100},
}
EVERYTHING: Final = CASES / "sluice" / "everything.yaml"
RESTART: Final = "checksum/sluice-restart"


def pod_of(manifests: list[Manifest]) -> dict[str, Any]:
    """The spec of the one pod that is there."""
    ((_, pod),) = [each for manifest in manifests for each in pod_specs(manifest)]
    return dict(pod)


def sluice_of(pod: dict[str, Any], kind: str = "containers") -> dict[str, Any]:
    (container,) = [each for each in pod.get(kind, ()) if each["name"] == "sluice"]
    found: dict[str, Any] = container
    return found


# Life cycle ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("chart", ["broker-sidecar", "application-sidecar"])
def test_a_native_sidecar_starts_before_all_others_and_ends_after_them(charts: Charts, chart: str) -> None:
    pod = pod_of(charts.render(chart, version="1.29"))
    first = pod["initContainers"][0]
    assert (first["name"], first["restartPolicy"]) == ("sluice", "Always")
    assert first["startupProbe"]["httpGet"] == {"path": "/startupz", "port": "probes"}
    assert "sluice" not in {each["name"] for each in pod["containers"]}
    assert "lifecycle" not in first


@pytest.mark.parametrize("chart", ["broker-sidecar", "application-sidecar"])
def test_an_old_cluster_gets_a_container_beside_the_others(charts: Charts, chart: str) -> None:
    pod = pod_of(charts.render(chart, version="1.28"))
    assert "restartPolicy" not in sluice_of(pod)
    assert "sluice" not in {each["name"] for each in pod.get("initContainers", ())}


def test_the_voters_of_a_quorum_start_together_and_have_time_to_read_their_logs(charts: Charts) -> None:
    """One by one, kafka-0 would wait for a quorum, and kafka-1 for kafka-0; killed while it recovers its log,
    a broker would begin again for ever."""
    values = {"kafka": {"recoveryMinutes": 20, "resources": {"requests": {"cpu": "250m", "memory": "1Gi"}}}}
    brokers = the(charts.render("broker-sidecar", values), "StatefulSet")["spec"]
    assert (brokers["replicas"], brokers["podManagementPolicy"]) == (3, "Parallel")
    (kafka,) = [each for each in brokers["template"]["spec"]["containers"] if each["name"] == "kafka"]
    startup = kafka["startupProbe"]
    assert startup["periodSeconds"] * startup["failureThreshold"] == 20 * 60
    assert startup["tcpSocket"] == kafka["livenessProbe"]["tcpSocket"]
    assert kafka["resources"]["requests"] == {"cpu": "250m", "memory": "1Gi"}


def test_a_rolling_restart_waits_until_the_other_voters_have_found_the_last_one(charts: Charts) -> None:
    """Seen in a cluster: Java asked for a voter at its old address for 30 s, the next ended meanwhile, and
    there was no quorum for 11 s, no acknowledgement for 22 s."""
    brokers = the(charts.render("broker-sidecar"), "StatefulSet")["spec"]
    (kafka,) = [each for each in brokers["template"]["spec"]["containers"] if each["name"] == "kafka"]
    (options,) = [each["value"] for each in kafka["env"] if each["name"] == "KAFKA_OPTS"]
    cached_s = int(options.removeprefix("-Dsun.net.inetaddr.ttl="))
    assert 0 < cached_s < brokers["minReadySeconds"] / 3


def test_the_example_says_that_brokers_do_not_come_through_the_sidecar(charts: Charts) -> None:
    """Else each start of a sidecar warns of followers that are charged as clients."""
    configs = of_kind(charts.render("broker-sidecar"), "ConfigMap")
    (config,) = [each["data"]["sluice.yaml"] for each in configs if "sluice.yaml" in each["data"]]
    assert yaml.safe_load(config)["inter_broker"] == {}


def test_who_wants_no_native_sidecar_gets_none(charts: Charts) -> None:
    pod = pod_of(charts.render("application-sidecar", {"sluice": {"nativeSidecar": "never"}}, version="1.37"))
    assert "restartPolicy" not in sluice_of(pod)


def test_the_three_probes_ask_three_paths_of_the_port_that_is_theirs(charts: Charts) -> None:
    container = sluice_of(pod_of(charts.render("sluice")))
    probes = {
        name: container[f"{name}Probe"]["httpGet"]["path"] for name in ("startup", "readiness", "liveness")
    }
    assert probes == {"startup": "/startupz", "readiness": "/readyz", "liveness": "/livez"}
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    assert ports == {"kafka": 9092, "metrics": 9308, "probes": 9309}
    assert {container[f"{name}Probe"]["httpGet"]["port"] for name in probes} == {"probes"}


@pytest.mark.parametrize(
    ("admin", "port"),
    [
        ({"bind_port": 8000}, 8001),
        ({"bind_port": 65535}, 65534),
        ({"probes": {"bind_port": 8086}}, 8086),
        ({"bind_port": 8000, "probes": {"bind_host": "0.0.0.0"}}, 8001),
    ],
)
def test_the_probes_ask_where_the_proxy_answers(charts: Charts, admin: dict[str, Any], port: int) -> None:
    values = {"proxy": {"config": {"admin": admin}}}
    container = sluice_of(pod_of(charts.render("sluice", values)))
    assert {each["name"]: each["containerPort"] for each in container["ports"]}["probes"] == port
    assert AdminOptions(**admin).probe_address[1] == port


def test_only_a_gateway_pauses_before_it_ends_and_only_where_the_kubelet_can(charts: Charts) -> None:
    assert "lifecycle" not in sluice_of(pod_of(charts.render("sluice", version="1.29")))
    container = sluice_of(pod_of(charts.render("sluice", version="1.30")))
    assert container["lifecycle"] == {"preStop": {"sleep": {"seconds": 5}}}


def test_a_new_gateway_is_ready_before_an_old_one_ends(charts: Charts) -> None:
    strategy = the(charts.render("sluice"), "Deployment")["spec"]["strategy"]
    assert strategy["rollingUpdate"] == {"maxSurge": 1, "maxUnavailable": 0}
    claimed = {"proxy": {"state": {"persistentVolumeClaim": "state"}}}
    strategy = the(charts.render("sluice", claimed), "Deployment")["spec"]["strategy"]
    assert strategy == {"type": "Recreate"}, "two would wait for each other's volume"


# Configuration ---------------------------------------------------------------------------------------------


def restart_hash(charts: Charts, **proxy: Any) -> str:
    deployment = the(charts.render("sluice", {"proxy": proxy}), "Deployment")
    found: str = deployment["spec"]["template"]["metadata"]["annotations"][RESTART]
    return found


def max_connections(charts: Charts, **proxy: Any) -> int | None:
    for manifest in charts.render("sluice", {"proxy": proxy}):
        text = manifest.get("data", {}).get("sluice.yaml") if manifest["kind"] == "ConfigMap" else None
        if text is not None:
            found: int | None = yaml.safe_load(text).get("limits", {}).get("max_connections")
            return found
    raise AssertionError("no configuration")


@pytest.mark.parametrize(
    ("memory", "limits", "connections"),
    [
        ("512Mi", {}, (512 - 256 - 90) * 1024 // 36),
        ("2Gi", {"max_buffered_bytes": 512 * 1024 * 1024}, (2048 - 512 - 90) * 1024 // 36),
        ("1G", {}, (1_000_000_000 - (256 + 90) * 1024 * 1024) // (36 * 1024)),
        ("536870912", {}, (512 - 256 - 90) * 1024 // 36),
        ("128Mi", {}, 100),
        ("512Mi", {"max_connections": 7}, 7),
        (None, {}, None),
    ],
)
def test_connections_are_as_many_as_the_memory_limit_has_room_for(
    charts: Charts, memory: object, limits: dict[str, int], connections: int | None
) -> None:
    proxy = {"resources": {"limits": {"memory": memory}}, "config": {"limits": limits}}
    assert max_connections(charts, **proxy) == connections


def test_an_access_log_needs_memory_that_connections_do_not_get(charts: Charts) -> None:
    log = {"directory": {"path": "/var/log/sluice"}}
    proxy = {
        "resources": {"limits": {"memory": "512Mi"}},
        "config": {"access_log": log},
        "accessLog": {"persistentVolumeClaim": "logs"},
    }
    assert max_connections(charts, **proxy) == (512 - 256 - 170) * 1024 // 41


@pytest.mark.parametrize(
    "proxy",
    [
        {"config": {"log": {"level": "debug"}}},
        {"config": {"drain": {"deadline_s": 20}}},
        {"config": {"limits": {"max_connections": 5}}},
        {"config": {"unknown_apis": "close"}},
        {"quotaFile": {"quotas": [{"user": "alice", "producer_byte_rate": 1}]}},
    ],
)
def test_what_the_running_proxy_takes_restarts_no_pod(charts: Charts, proxy: dict[str, Any]) -> None:
    assert restart_hash(charts, **proxy) == restart_hash(charts)


@pytest.mark.parametrize(
    "config",
    [
        {"log": {"format": "console"}},
        {"limits": {"max_sensors": 5}},
        {"pacing": {"burst_s": 2}},
        {"listeners": [OTHER_PORT]},
    ],
)
def test_any_other_change_of_the_configuration_does(charts: Charts, config: dict[str, Any]) -> None:
    assert restart_hash(charts, config=config) != restart_hash(charts)


def test_numbers_reach_the_proxy_as_they_were_written(charts: Charts) -> None:
    manifests = charts.render("sluice", files=[EVERYTHING])
    config = yaml.safe_load(the(manifests, "ConfigMap", "-config")["data"]["sluice.yaml"])
    assert config["producer_ids"]["broker_heap_bytes"] == 6442450944
    assert isinstance(config["producer_ids"]["broker_heap_bytes"], int)
    quotas = yaml.safe_load(the(manifests, "ConfigMap", "-quotas")["data"]["quotas.yaml"])
    assert [each.get("producer_byte_rate") for each in quotas["quotas"][:3]] == [1048577, None, 5000000]
    assert quotas["quotas"][1]["request_percentage"] == 12.5
    assert quotas["tenants"] == [{"name": "team-a", "members": ["bob", "no"]}]


def test_clients_are_told_the_service_unless_a_listener_names_a_host(charts: Charts) -> None:
    manifests = charts.render("sluice", files=[EVERYTHING])
    config = yaml.safe_load(the(manifests, "ConfigMap", "-config")["data"]["sluice.yaml"])
    hosts = [listener["gateway"]["advertised_host"] for listener in config["listeners"]]
    assert hosts == ["quota-gateway.kafka.svc", "kafka.example.com"]
    assert the(manifests, "Service", "gateway")["metadata"]["name"] == "quota-gateway"


# Ports and policies ----------------------------------------------------------------------------------------


def test_the_service_has_a_port_for_each_broker_of_each_listener_and_none_for_metrics(charts: Charts) -> None:
    manifests = charts.render("sluice", files=[EVERYTHING])
    spec = the(manifests, "Service", "quota-gateway")["spec"]
    ports = {port["name"]: port["port"] for port in spec["ports"]}
    first = {"kafka": 9092, **{f"b0-{100 + number}": 9100 + number for number in range(4)}}
    assert ports == first | {"kafka-1": 9192, **{f"b1-{100 + number}": 9200 + number for number in range(4)}}
    assert (spec["type"], spec["externalTrafficPolicy"]) == ("LoadBalancer", "Local")
    metrics = the(manifests, "Service", "-metrics")["spec"]
    assert (metrics["type"], [port["port"] for port in metrics["ports"]]) == ("ClusterIP", [9308])


def test_a_listener_with_sni_needs_one_port(charts: Charts) -> None:
    manifests = charts.render("sluice", files=[CASES / "sluice" / "sni.yaml"])
    ports = the(manifests, "Service", "quotas-sluice")["spec"]["ports"]
    assert [port["port"] for port in ports] == [9093]


def test_the_network_policy_lets_clients_to_listeners_and_scrapers_to_metrics(charts: Charts) -> None:
    policy = the(charts.render("sluice", files=[EVERYTHING]), "NetworkPolicy")["spec"]
    clients, scrapers = policy["ingress"]
    assert policy["policyTypes"] == ["Ingress"]
    assert [(port["port"], port.get("endPort")) for port in clients["ports"]] == [
        (9092, None), (9100, 9103), (9192, None), (9200, 9203),
    ]  # fmt: skip
    assert clients["from"][1] == {"ipBlock": {"cidr": "10.0.0.0/8", "except": ["10.9.0.0/16"]}}
    assert [port["port"] for port in scrapers["ports"]] == [9308]
    assert scrapers["from"] == [
        {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}}
    ]


def test_a_brokers_policy_leaves_its_own_ports_open(charts: Charts) -> None:
    policy = the(charts.render("broker-sidecar"), "NetworkPolicy")["spec"]
    assert [port["port"] for port in policy["ingress"][-1]["ports"]] == [9093, 9094]
    assert "from" not in policy["ingress"][-1]
    assert policy["ingress"][1]["from"] == [{"podSelector": {}}]


@pytest.mark.parametrize("chart", ["sluice", "broker-sidecar"])
def test_of_gateways_and_of_voters_one_at_a_time_may_be_missing(charts: Charts, chart: str) -> None:
    """Three voters have a quorum while two are there."""
    assert the(charts.render(chart), "PodDisruptionBudget")["spec"]["maxUnavailable"] == 1
    assert not of_kind(charts.render("application-sidecar"), "PodDisruptionBudget")


# Monitoring ------------------------------------------------------------------------------------------------


def test_monitors_are_off_unless_they_are_asked_for(charts: Charts) -> None:
    kinds = {each["kind"] for each in charts.render("sluice")}
    assert not kinds & {"PodMonitor", "ServiceMonitor", "PrometheusRule"}


@pytest.mark.parametrize("chart", ["broker-sidecar", "application-sidecar"])
def test_an_example_is_monitored_where_the_cluster_knows_how(charts: Charts, chart: str) -> None:
    assert of_kind(charts.render(chart), "PodMonitor")
    assert not of_kind(charts.render(chart, apis=()), "PodMonitor")


def test_who_asks_for_a_monitor_gets_it_though_the_cluster_is_not_asked(charts: Charts) -> None:
    for values in ({"proxy": {"podMonitor": {"enabled": True}}}, {"serviceMonitor": {"enabled": True}}):
        kinds = {each["kind"] for each in charts.render("sluice", values, apis=())}
        assert kinds & {"PodMonitor", "ServiceMonitor"}


def test_the_service_monitor_finds_the_metrics_service_and_no_other(charts: Charts) -> None:
    manifests = charts.render("sluice", files=[EVERYTHING])
    monitor = the(manifests, "ServiceMonitor")
    wanted = monitor["spec"]["selector"]["matchLabels"].items()
    found = [
        each["metadata"]["name"]
        for each in of_kind(manifests, "Service")
        if wanted <= each["metadata"]["labels"].items()
    ]
    assert found == ["quota-gateway-metrics"]
    assert monitor["metadata"]["labels"]["release"] == "prometheus"


def test_the_prometheus_rule_is_the_repositorys_with_links_and_labels(charts: Charts, tmp_path: Path) -> None:
    rule = the(charts.render("sluice", files=[EVERYTHING]), "PrometheusRule")
    source = yaml.safe_load((ROOT / "deploy/prometheus/alerts.yaml").read_text(encoding="utf-8"))
    ours = {each["alert"]: each for group in source["groups"] for each in group["rules"]}
    rendered = {each["alert"]: each for group in rule["spec"]["groups"] for each in group["rules"]}
    assert set(rendered) == set(ours) - {"SluiceNearLimit"}
    for name, alert in rendered.items():
        assert alert["expr"] == ours[name]["expr"]
        assert alert["labels"] == {**ours[name]["labels"], "team": "platform"}
        assert alert["annotations"]["summary"] == ours[name]["annotations"]["summary"]
        page = alert["annotations"]["runbook_url"].removeprefix("https://example.com/sluice/")
        assert (ROOT / page).is_file()
    file = tmp_path / "rules.yaml"
    file.write_text(yaml.safe_dump(rule["spec"]), encoding="utf-8")
    subprocess.run([prometheus_tool("promtool"), "check", "rules", file], check=True, capture_output=True)


def test_the_dashboard_is_the_repositorys(charts: Charts) -> None:
    config = the(charts.render("sluice", files=[EVERYTHING]), "ConfigMap", "-dashboard")
    ours = json.loads((ROOT / "deploy/grafana/sluice.json").read_text(encoding="utf-8"))
    assert json.loads(config["data"]["sluice.json"]) == ours
    assert config["metadata"]["labels"]["grafana_dashboard"] == "1"


# The nightly job -------------------------------------------------------------------------------------------


def test_two_nights_never_run_at_once_and_old_ones_go(charts: Charts) -> None:
    spec = the(charts.render("sluice", files=[EVERYTHING]), "CronJob")["spec"]
    assert spec["concurrencyPolicy"] == "Forbid"
    assert (spec["schedule"], spec["timeZone"]) == ("30 2 * * *", "Etc/UTC")
    assert (spec["successfulJobsHistoryLimit"], spec["failedJobsHistoryLimit"]) == (3, 3)
    assert spec["jobTemplate"]["spec"]["template"]["spec"]["restartPolicy"] == "Never"


def test_the_job_is_told_what_the_command_takes(charts: Charts) -> None:
    spec = the(charts.render("sluice", files=[EVERYTHING]), "CronJob")["spec"]
    (container,) = spec["jobTemplate"]["spec"]["template"]["spec"]["containers"]
    name, *arguments = container["args"]
    assert name == "recalibrate"
    alone = typer.Typer()
    alone.command()(recalibrate)
    context = typer.main.get_command(alone).make_context(
        "recalibrate", list(arguments), resilient_parsing=False
    )
    assert context.params["logs"] == "/data/logs"
    assert context.params["out"] == "s3://plans/kafka"
    assert str(context.params["quotas"]) == "/etc/sluice/quotas/quotas.yaml"
    assert list(context.params["conf"]) == ["spark.driver.memory=3g"]


def test_the_jobs_settings_are_some_that_it_takes(charts: Charts) -> None:
    config = the(charts.render("sluice", files=[EVERYTHING]), "ConfigMap", "-recalibration")
    settings = parse_settings(config["data"]["settings.yaml"], "settings.yaml")
    assert settings.policy.headroom == 1.2
    assert not settings.skip_damaged


# What is refused -------------------------------------------------------------------------------------------


MISTAKES: Final = yaml.safe_load(Path(__file__).with_name("mistakes.yaml").read_text(encoding="utf-8"))


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: mistake["named"])
def test_a_mistake_in_values_is_refused_by_its_key(charts: Charts, mistake: dict[str, Any]) -> None:
    assert mistake["named"] in charts.refusal(mistake["chart"], mistake["values"])


def test_a_native_sidecar_cannot_be_forced_upon_an_old_cluster(charts: Charts) -> None:
    said = charts.refusal("application-sidecar", {"sluice": {"nativeSidecar": "always"}}, version="1.28")
    assert "nativeSidecar" in said
    assert "1.29" in said


def test_a_grace_period_that_is_just_enough_is_taken(charts: Charts) -> None:
    # 5 s until SIGTERM, 25 s to drain, 5 s to end.
    pod = pod_of(charts.render("sluice", {"proxy": {"lifecycle": {"terminationGracePeriodSeconds": 35}}}))
    assert pod["terminationGracePeriodSeconds"] == 35
