"""The job's settings from YAML, and what is said of those that are wrong."""

from __future__ import annotations

import pytest

from sluice.quotas.files.config_error import ConfigError
from sluice.quotas.kinds import QuotaKind
from sluice.recalibration.policy.settings import JobSettings, PolicySettings
from sluice.recalibration.settings_file import OVERSUBSCRIPTION, parse_settings


def test_nothing_said_means_the_defaults() -> None:
    assert parse_settings("", "s.yaml") == JobSettings()


def test_what_is_said_is_taken() -> None:
    found = parse_settings(
        """
        damaged_files: refuse
        capacity: {producer_byte_rate: 1000, request_percentage: 400}
        oversubscription: 2
        floor: {producer_byte_rate: 10, producer_ids_rate: 36}
        ceiling: {producer_byte_rate: 500}
        policy: {headroom: 1.3, past_days: [5, 14], min_days_to_cut: 2, quantile: 0.98}
        replay_days: 3
        burst_s: 0.5
        producer_ids_burst_s: 7200
        compact: false
        timezone: Europe/Berlin
        keep_log_days: 30
        keep_state_days: 100
        """,
        "s.yaml",
    )
    assert found == JobSettings(
        skip_damaged=False,
        policy=PolicySettings(headroom=1.3, past_days=(5, 14), min_days_to_cut=2, quantile=0.98),
        floors={"producer_byte_rate": 10, "producer_ids_rate": 36},
        ceilings={"producer_byte_rate": 500},
        room={"producer_byte_rate": 2_000, "request_percentage": 800},
        replay_days=3,
        burst_s=0.5,
        burst_h=2.0,
        compact=False,
        timezone="Europe/Berlin",
        keep_log_days=30,
        keep_state_days=100,
    )
    assert found.policy_of(QuotaKind.PRODUCE).ceiling == 500
    assert found.policy_of(QuotaKind.PRODUCER_IDS).floor == pytest.approx(0.01), "36 an hour"
    assert found.policy_of(QuotaKind.FETCH) == found.policy


def test_capacity_alone_is_oversubscribed_by_the_default() -> None:
    assert parse_settings("capacity: {consumer_byte_rate: 100}", "s").room == {
        "consumer_byte_rate": 100 * OVERSUBSCRIPTION
    }


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("replay_day: 3", "s.yaml:1: replay_day: unknown key; did you mean replay_days?"),
        ("timezone: Berlin", "s.yaml:1: timezone: must be a time zone such as Europe/Berlin, is 'Berlin'"),
        ("keep_log_days: 2", "s.yaml:1: keep_log_days: must be 8 days or more, for late files; is 2"),
        ("compact: 1", "s.yaml:1: compact: must be true or false, is 1"),
        ("damaged_files: ignore", "s.yaml:1: damaged_files: must be skip or refuse, is 'ignore'"),
        (
            "\nfloor:\n  producer_bite_rate: 1",
            "s.yaml:3: floor.producer_bite_rate: unknown key; did you mean producer_byte_rate?",
        ),
        (
            "floor: {producer_byte_rate: 9}\nceiling: {producer_byte_rate: 8}",
            "s.yaml:1: floor.producer_byte_rate: is above its ceiling, 8",
        ),
        ("policy: {headroom: 0}", "s.yaml:1: policy.headroom: must be a number above 0, is 0"),
        ("policy: {headroom: 0.15}", "s.yaml:1: policy.headroom: must be 1 or more, a factor such as 1.15"),
        ("policy: {max_step_down: 30}", "s.yaml:1: policy.max_step_down: must be below 1, is 30"),
        ("policy: {quantile: 1.5}", "s.yaml:1: policy.quantile: must be below 1, is 1.5"),
        (
            "policy: {past_days: [9, 3]}",
            "s.yaml:1: policy.past_days: must be two ages in days such as [8, 21]",
        ),
        ("policy: {floor: 5}", "s.yaml:1: policy.floor: stands beside policy, by quota"),
        ("replay_days: 0", "s.yaml:1: replay_days: must be a whole number of days, 1 to 3,660, is 0"),
        (
            "keep_state_days: 999999999999",
            "keep_state_days: must be a whole number of days, 1 to 3,660, is 9",
        ),
        ("policy: {history_days: 3661}", "history_days: must be a whole number of days, 1 to 3,660, is 3661"),
        ("capacity: 5", "s.yaml:1: capacity: must be a mapping such as `producer_byte_rate: 1000000`, is 5"),
        ("[]", "must be a mapping of keys"),
        (
            "capacity: {producer_byte_rate: 100MB}",
            "is '100MB'; write 100000000 (100 MB) or 104857600 (100 MiB)",
        ),
        ("burst_s: .inf", "s.yaml:1: burst_s: must be a number above 0, is inf"),
        (
            "capacity: {producer_byte_rate: 1.0e+308}\noversubscription: 2",
            "s.yaml:1: capacity.producer_byte_rate: is too large, oversubscribed by 2",
        ),
    ],
)
def test_what_is_wrong_is_told_with_key_and_line(text: str, told: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_settings(text, "s.yaml")
    assert told in str(caught.value)
