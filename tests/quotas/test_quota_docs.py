"""docs/quotas.md says what the code does: its tables are read and compared."""

from __future__ import annotations

from sluice.quotas.entity import DEFAULT, Prefix, QuotaEntity, QuotaLevel, Tenant
from sluice.quotas.kinds import KINDS, QuotaKind
from sluice.quotas.sensors.kafka import KafkaSensor
from sluice.quotas.sensors.smooth import SmoothSensor
from testkit.repository.docs_tables import rows_below


def test_the_docs_list_every_quota_with_its_key() -> None:
    documented = [(key, quota) for key, quota, _, _ in rows_below("What each quota does")]
    assert documented == [(f"`{spec.config_key}`", f"`{kind.value}`") for kind, spec in KINDS.items()]


def test_the_docs_say_of_every_quota_what_it_limits() -> None:
    documented = [(limits, number) for _, _, limits, number in rows_below("What each quota does")]
    for (limits, number), spec in zip(documented, KINDS.values(), strict=True):
        assert limits.startswith(spec.effect.rstrip("."))
        assert number.startswith(spec.limit_unit)


def test_the_docs_list_the_levels_in_order_and_which_of_them_clients_mint() -> None:
    documented = [
        (rule.strip("`"), bool(kafkas), bool(mints))
        for rule, kafkas, _, _, mints in rows_below("Which limit applies")
    ]
    assert documented == [(level.value, level.is_kafkas, level.mints_client_ids) for level in QuotaLevel]


def test_the_docs_name_each_levels_entity_by_its_keys_in_the_quota_file() -> None:
    levels = {f"`{level.value}`": level for level in QuotaLevel}
    for rule, _, entity, _, _ in rows_below("Which limit applies"):
        level = levels[rule]
        configured = level.configured_entity("U", "C", Tenant("T"), Prefix("P"))
        assert configured is not None
        assert entity.split(", ") == [
            f"{key} `<default>`" if name is DEFAULT else key for key, name in configured.parts.items()
        ]


def test_the_docs_worked_example_comes_out() -> None:
    """1,000 B/s, burst 1 s, full at 10 s; the table is in seconds."""
    sensor = SmoothSensor(QuotaKind.PRODUCE, QuotaLevel.USER, QuotaEntity("alice"), 1_000, 10_000)
    rows = rows_below("Pacing")
    assert len(rows) == 4
    for at, charge, turn, paid, _ in rows:
        clears_at_ms = sensor.charge(
            int(charge.removesuffix(" B").replace(",", "")), _ms(at.removesuffix(" s"))
        )
        assert (sensor.eligible_at_ms, clears_at_ms) == (_ms(turn), _ms(paid))


def test_the_docs_example_of_the_brokers_pacing_comes_out() -> None:
    """1,000 B/s, 11 windows of 1 s."""
    sensor = KafkaSensor(QuotaKind.PRODUCE, QuotaLevel.USER, QuotaEntity("alice"), 1_000, 10_000)
    rows = rows_below("The broker's own pacing")
    told = []
    for at, charge, _, _ in rows:
        at_ms = _ms(at.removesuffix(" s"))
        told.append(sensor.charge(int(charge.removesuffix(" B").replace(",", "")), at_ms) - at_ms)
    assert told == [int(delay.removesuffix(" ms").replace(",", "")) for _, _, delay, _ in rows]


def _ms(seconds: str) -> float:
    return round(float(seconds) * 1_000)
