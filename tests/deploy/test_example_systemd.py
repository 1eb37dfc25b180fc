"""The systemd example: its units are ones, hardened, and agree with the configuration that they start."""

from __future__ import annotations

import shutil
import subprocess
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from sluice.proxy.config.config import Config
from sluice.proxy.config.file import config_of
from sluice.proxy.runtime.open_files import files_of
from sluice.quotas.files.yaml_lines import parse_yaml
from testkit.examples.readme import commands_of
from testkit.examples.systemd import FOLDER, INSTALLED, command, environment, unit
from testkit.proxy.sluice_process import SLUICE
from tools.check_docs import check_shell

SERVICE, NIGHT, TIMER = "sluice.service", "sluice-recalibrate.service", "sluice-recalibrate.timer"
UNITS: Final = (SERVICE, NIGHT, TIMER)
EXPOSURE: Final = 2.0
"""of 10; systemd calls it OK"""
needs_systemd: Final = pytest.mark.skipif(
    shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed (Debian: systemd)"
)


@pytest.fixture
def units(tmp_path: Path) -> Path:
    """A folder with the units, whose program is this checkout's, so that it is there."""
    for name in UNITS:
        text = (FOLDER / name).read_text(encoding="utf-8").replace(INSTALLED, str(SLUICE))
        (tmp_path / name).write_text(text, encoding="utf-8")
    return tmp_path


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """What lies in /etc/sluice, with the folder of the log that the unit makes."""
    folder = tmp_path / "etc"
    shutil.copytree(FOLDER, folder)
    (folder / "log").mkdir()
    text = (folder / "sluice.yaml").read_text(encoding="utf-8")
    (folder / "sluice.yaml").write_text(text.replace("/var/log/sluice", "log"), encoding="utf-8")
    return folder


def configuration() -> Config:
    path = FOLDER / "sluice.yaml"
    return config_of(parse_yaml(path.read_text(encoding="utf-8"), str(path)), str(path), {})


def verified(file: Path) -> tuple[int, str]:
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", file], capture_output=True, text=True, check=False
    )
    return done.returncode, done.stdout + done.stderr


def reloaded(folder: Path) -> subprocess.CompletedProcess[str]:
    """What `systemctl reload` starts."""
    words, variables = command(SERVICE, "ExecReload", folder), environment(SERVICE, folder)
    return subprocess.run(words, env=variables, capture_output=True, text=True, check=False)


@needs_systemd
@pytest.mark.parametrize("name", UNITS)
def test_systemd_finds_nothing_wrong_with_a_unit(units: Path, name: str) -> None:
    assert verified(units / name) == (0, "")


@needs_systemd
@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("LimitNOFILE=", "LimitNOFILES="),
        ("ProtectSystem=strict", "ProtectSystem=very"),
        (str(SLUICE), "/no/sluice"),
    ],
)
def test_a_mistake_in_a_unit_is_seen(units: Path, right: str, wrong: str) -> None:
    text = (units / SERVICE).read_text(encoding="utf-8")
    assert right in text
    (units / SERVICE).write_text(text.replace(right, wrong), encoding="utf-8")
    assert verified(units / SERVICE) != (0, "")


@needs_systemd
@pytest.mark.parametrize("name", [SERVICE, NIGHT])
def test_a_service_exposes_little(units: Path, name: str) -> None:
    asked = ["systemd-analyze", "security", "--offline=yes", f"--threshold={EXPOSURE * 10:.0f}"]
    done = subprocess.run([*asked, units / name], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    bare = units / "bare.service"
    bare.write_text("[Service]\nExecStart=/bin/true\n", encoding="utf-8")
    assert subprocess.run([*asked, bare], capture_output=True, check=False).returncode != 0


@needs_systemd
def test_the_timer_names_a_time_and_starts_the_night() -> None:
    (at,) = unit(TIMER)["OnCalendar"]
    assert (
        subprocess.run(["systemd-analyze", "calendar", at], capture_output=True, check=False).returncode == 0
    )
    assert "Unit" not in unit(TIMER), "so it is the service of the same name"
    assert at.endswith("UTC"), "a day of the log is one of UTC"


def test_there_are_files_for_all_connections_and_time_for_the_drain() -> None:
    found, config = unit(SERVICE), configuration()
    assert int(found["LimitNOFILE"][0]) >= files_of(10_000), "limits.max_connections' default"
    assert config.access_log is not None
    assert int(found["TimeoutStopSec"][0]) > config.drain.deadline_s + config.access_log.close_deadline_s


def test_what_is_written_lies_in_folders_that_the_units_make() -> None:
    config = configuration()
    assert config.access_log is not None
    assert config.access_log.directory is not None
    log = str(config.access_log.directory.path)
    for name in (SERVICE, NIGHT):
        assert log == f"/var/log/{unit(name)['LogsDirectory'][0]}"
    plans = Path(str(config.admin.status.plan))
    assert plans.parent == Path("/var/lib", unit(NIGHT)["StateDirectory"][0])
    (line,) = unit(NIGHT)["ExecStart"]
    words = line.split()
    assert words[words.index("--out") + 1] == str(plans)
    assert words[words.index("--logs") + 1] == log


@pytest.mark.parametrize(
    ("name", "key"), [(SERVICE, "ExecStart"), (SERVICE, "ExecReload"), (NIGHT, "ExecStart")]
)
def test_every_command_of_a_unit_is_one_of_sluice(name: str, key: str, tmp_path: Path) -> None:
    check_shell(" ".join(["sluice", *command(name, key, tmp_path)[1:]]))


def test_a_reload_tells_whether_the_files_are_good(installed: Path) -> None:
    good = reloaded(installed)
    assert (good.returncode, good.stdout[:3]) == (0, "OK:"), good.stderr
    text = (installed / "quotas.yaml").read_text(encoding="utf-8")
    (installed / "quotas.yaml").write_text(
        text.replace("producer_byte_rate", "producer_rate"), encoding="utf-8"
    )
    bad = reloaded(installed)
    assert bad.returncode == 2
    assert "quotas.yaml:4: quotas[0].producer_rate" in bad.stderr


def test_the_readme_installs_every_file_where_the_units_look_for_it() -> None:
    installed: dict[str, str] = {}
    for words in commands_of(FOLDER / "README.md"):
        if words[0] == "install":
            values = {"-m", "-t"}
            names = [
                word for before, word in pairwise(words) if before not in values and not word.startswith("-")
            ]
            if "-t" in words:
                folder = words[words.index("-t") + 1]
                installed |= {f"{folder}/{Path(name).name}": name for name in names}
            else:
                source, target = names
                installed[target] = source
    assert all((FOLDER / source).is_file() for source in installed.values()), installed
    beside = {path.name for path in FOLDER.iterdir()} - {"README.md"}
    assert beside <= {Path(source).name for source in installed.values()}
    wanted = {"/etc/sluice/quotas.yaml", *unit(SERVICE)["EnvironmentFile"]}
    wanted |= {environment(SERVICE, Path("/etc/sluice"))["SLUICE_CONFIG"]}
    wanted |= {word for word in unit(NIGHT)["ExecStart"][0].split() if word.endswith(".yaml")}
    assert wanted <= set(installed)
    assert {f"/etc/systemd/system/{name}" for name in UNITS} <= set(installed)
    assert unit(SERVICE)["User"] == unit(NIGHT)["User"] == [_made_user()]


def _made_user() -> str:
    kind, name, *_ = (FOLDER / "sysusers.conf").read_text(encoding="utf-8").split()
    assert kind == "u"
    return name


def test_the_status_page_and_the_metrics_are_on_loopback() -> None:
    config: dict[str, Any] = yaml.safe_load((FOLDER / "sluice.yaml").read_text(encoding="utf-8"))
    assert config["admin"]["bind_host"] == "127.0.0.1"
