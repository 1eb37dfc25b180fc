"""Nothing tells the pump from the Python code: the same traffic in two worlds, and all of them compared."""

from __future__ import annotations

import pytest

from sluice.proxy.connection.data_path import PURE
from sluice.proxy.pump.choice import PUMP
from testkit.proxy.data_paths import path_of
from testkit.pump.worlds import Difference, Twins
from testkit.thorough import few
from tools import fuzz_pump

STEPS = 250


@pytest.fixture(autouse=True)
def built() -> None:
    """Skips where there is no pump."""
    path_of(PUMP)


def go_on(twins: Twins, steps: int) -> None:
    until = twins.steps + steps
    while twins.steps < until and not twins.is_over:
        twins.step()


@pytest.mark.parametrize("seed", few(range(80), 16))
def test_the_worlds_stay_equal(seed: int) -> None:
    go_on(Twins(seed), STEPS)


@pytest.mark.parametrize("what", ["charged", "last_ms"])
def test_a_sensor_that_differs_is_seen(what: str) -> None:
    twins = next(
        found for found in map(Twins, range(100)) if found.setting.produce and not found.setting.is_hostile
    )
    while not any(sensor.charged for sensor in twins.worlds[1].shared.quotas.sensors()):
        twins.step()
    sensor = next(one for one in twins.worlds[1].shared.quotas.sensors() if one.charged)
    setattr(sensor, what, getattr(sensor, what) + 1)
    with pytest.raises(Difference, match="seed"):
        go_on(twins, 20)


def test_what_only_a_snapshot_tells_is_seen() -> None:
    twins = Twins(0)
    side = twins.worlds[1].shells[0].session._requests
    side._frame_limit += 1
    with pytest.raises(Difference, match="_frame_limit"):
        go_on(twins, 64)


def test_the_command_tells_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert fuzz_pump.main(["--steps", "300"]) == 0
    last = capsys.readouterr().out.splitlines()[-1]
    assert '"differences": 0' in last


def test_the_command_tells_what_differs(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def lost(self: Twins) -> None:
        self.steps += 200
        raise Difference("a byte is lost")

    monkeypatch.setattr(Twins, "step", lost)
    assert fuzz_pump.main(["--steps", "300"]) == 1
    assert "a byte is lost" in capsys.readouterr().out


def test_without_a_pump_the_command_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fuzz_pump, "compiled", lambda: None)
    assert fuzz_pump.main(["--steps", "1"]) == 2


def test_one_world_is_pure() -> None:
    pure, pump = Twins(0).worlds
    assert type(pure.shells[0].session) is PURE.session
    assert type(pump.shells[0].session) is path_of(PUMP).session
