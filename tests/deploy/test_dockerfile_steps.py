"""The check of the image runs what the Dockerfile says: nothing is left out, nothing let in unseen."""

from __future__ import annotations

from pathlib import Path

import pytest
from dockerfile_steps import ImageConfig, Stage, UnknownStep, let_in, needed, read_stages

ROOT = Path(__file__).resolve().parents[2]
TWO = """
FROM debian:x-slim AS base
ENV A=1 B="x y" PATH=/a:$PATH
WORKDIR /src
ARG V=7
LABEL l="v${V}" m=$A
SHELL ["/bin/bash", "-c"]
RUN --mount=type=cache,target=/c one \\
 && two
FROM base AS other
WORKDIR sub
FROM scratch
COPY --from=other a b /c/
USER 5:6
HEALTHCHECK --interval=1s CMD ["/h", "-x"]
ENTRYPOINT ["/e"]
CMD run it
"""


def stages(folder: Path, text: str) -> list[Stage]:
    path = folder / "Dockerfile"
    path.write_text(text)
    return read_stages(path)


def config_of(*found: Stage) -> ImageConfig:
    config = ImageConfig()
    for stage in found:
        config = config.from_here()
        for step in stage.steps:
            config.apply(step)
    return config


def test_a_stage_has_its_steps_in_their_order(tmp_path: Path) -> None:
    base, other, last = stages(tmp_path, TWO)
    assert (base.name, base.base) == ("base", "debian:x-slim")
    assert (other.base, last.base, last.name) == ("base", "scratch", "2")
    assert [step.name for step in base.steps] == ["ENV", "WORKDIR", "ARG", "LABEL", "SHELL", "RUN"]
    run = base.steps[-1]
    assert (run.flags, run.words) == ({"mount": "type=cache,target=/c"}, ("one  && two",))


def test_a_build_runs_the_stages_that_its_target_rests_on_and_copies_from(tmp_path: Path) -> None:
    found = stages(tmp_path, TWO + "FROM debian:x-slim AS unused\n")
    assert [stage.name for stage in needed(found, "2")] == ["base", "other", "2"]
    assert [stage.name for stage in needed(found, "other")] == ["base", "other"]


def test_variables_arguments_and_folders_mean_what_they_mean_in_docker(tmp_path: Path) -> None:
    base, other, _ = stages(tmp_path, TWO)
    config = config_of(base, other)
    assert config.env["B"] == "x y"
    assert config.env["PATH"].startswith("/a:/usr/local/sbin:")
    assert config.labels == {"l": "v7", "m": "1"}
    assert config.workdir == "/src/sub"
    assert config.shell == ("/bin/bash", "-c")
    assert config.args == {}  # of the other stage


def test_what_the_image_says_of_its_processes(tmp_path: Path) -> None:
    config = config_of(stages(tmp_path, TWO)[2])
    assert (config.user, config.healthcheck, config.entrypoint) == ("5:6", ("/h", "-x"), ("/e",))
    assert config.cmd == ("/bin/sh", "-c", "run it")


@pytest.mark.parametrize(
    "text",
    [
        "FROM a\nADD x /y\n",
        "FROM a\nVOLUME /x\n",
        "FROM a\nONBUILD RUN x\n",
        "FROM --platform=linux/arm64 a\n",
        "ARG X\nFROM a\n",
        "FROM a:$X\n",
        "FROM a\nRUN <<E\nx\nE\n",
    ],
)
def test_a_step_that_is_not_understood_is_an_error(tmp_path: Path, text: str) -> None:
    with pytest.raises(UnknownStep):
        stages(tmp_path, text)


@pytest.mark.parametrize(
    ("ignore", "expected"),
    [
        ("", ["a/b.py", "a/__pycache__/b.pyc", "c", "d/e"]),
        ("*\n!a\n**/__pycache__\n", ["a/b.py"]),
        ("*\n!a\n!d/e\n# !c\n", ["a/b.py", "a/__pycache__/b.pyc", "d/e"]),
        ("a\n", ["c", "d/e"]),
        ("**/*.pyc\nc\n", ["a/b.py", "d/e"]),
    ],
)
def test_the_last_line_that_matches_decides_what_gets_in(ignore: str, expected: list[str]) -> None:
    assert list(let_in(["a/b.py", "a/__pycache__/b.pyc", "c", "d/e"], ignore)) == expected


def test_nothing_secret_or_large_of_a_checkout_gets_into_the_build() -> None:
    ignore = (ROOT / ".dockerignore").read_text()
    kept_out = [
        ".git/config",
        ".venv/x",
        ".cache/y",
        "tests/a.py",
        ".env",
        "id_rsa",
        "proxy/__pycache__/a.pyc",
    ]
    assert list(let_in(kept_out, ignore)) == []


def test_our_dockerfile_is_understood_and_its_last_stage_is_the_proxy() -> None:
    found = read_stages(ROOT / "Dockerfile")
    assert found[-1].name == "proxy"
    assert {"recalibration", "proxy"} <= {stage.name for stage in found}
    assert "recalibration" not in {stage.name for stage in needed(found, "proxy")}


@pytest.mark.parametrize("target", ["proxy", "recalibration"])
def test_every_image_runs_as_a_user_with_a_number_and_without_a_shell_between(target: str) -> None:
    found = {stage.name: stage for stage in read_stages(ROOT / "Dockerfile")}
    config = config_of(found[target])
    assert config.user == "65532:65532"
    assert config.entrypoint == ("/opt/sluice/bin/sluice",)
    assert "org.opencontainers.image.title" in config.labels


def test_whatever_pip_installs_is_pinned_with_checksums() -> None:
    text = (ROOT / "Dockerfile").read_text().replace("\\\n", " ")
    commands = [part for line in text.splitlines() for part in line.split("&&") if "/bin/pip " in part]
    assert len(commands) >= 3
    for command in commands:
        assert "--require-hashes" in command or "--no-index" in command, command
