"""The Dockerfile's steps, run as they stand in a clean root file system: `docker build` without Docker.

Needs root. The stages' roots lie below .cache/deploy/image-TARGET; the base is made anew by each build.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from clean_root import Bind, CleanRootError, copy_root, entered, make_debian, remove_root
from dockerfile_steps import ImageConfig, Stage, Step, UnknownStep, expanded, let_in, needed, read_stages

REPOSITORY: Final = Path(__file__).resolve().parents[2]
CACHE: Final = Path(os.environ.get("SLUICE_CACHE", Path.home() / ".cache" / "sluice")) / "image"
_CA_BUNDLE: Final = Path("/etc/ssl/certs/ca-certificates.crt")
_CA_INSIDE: Final = "/run/machine-ca.crt"
_STEP_WITHIN_S: Final = 900.0


def work_folder(target: str) -> Path:
    """Where the roots of a build of this target lie."""
    return REPOSITORY / ".cache" / "deploy" / f"image-{target}"


@dataclass(frozen=True, slots=True)
class Image:
    """What a build ends with."""

    root: Path
    config: ImageConfig


def need_root() -> None:
    """Say so and exit with code 1 unless this is root on Linux."""
    if os.geteuid() != 0:
        sys.exit("needs root: a clean root file system is made with debootstrap and entered with chroot")


def build(target: str) -> Image:
    """Run every step of the Dockerfile that `target` needs. Raises CleanRootError, UnknownStep."""
    stages = read_stages(REPOSITORY / "Dockerfile")
    if all(stage.name != target for stage in stages):
        raise UnknownStep(f"no stage is named {target}")
    work = work_folder(target)
    if work.exists():
        remove_root(work)
    work.mkdir(parents=True)
    _fill_context(work / "context")
    images: dict[str, Image] = {}
    for stage in needed(stages, target):
        images[stage.name] = _built(stage, images, work)
    return images[target]


def _built(stage: Stage, images: dict[str, Image], work: Path) -> Image:
    base = images.get(stage.base) or _base(stage.base, images, work)
    print(f"--- FROM {stage.base} AS {stage.name}", flush=True)
    root = work / stage.name
    copy_root(base.root, root)
    config = base.config.from_here()
    for step in stage.steps:
        since = time.monotonic()
        if step.name == "RUN":
            _run(step, root, config)
        elif step.name == "COPY":
            source = step.flags.get("from")
            _copy(step, images[source].root if source else work / "context", root, config)
        elif step.name == "WORKDIR":
            config.apply(step)
            (root / config.workdir.lstrip("/")).mkdir(parents=True, exist_ok=True)
        else:
            config.apply(step)
        took_s = time.monotonic() - since
        if took_s >= 1:
            print(f"    line {step.line}, {step.name}: {took_s:.0f} s", flush=True)
    return Image(root, config)


def _base(image: str, images: dict[str, Image], work: Path) -> Image:
    if image == "scratch":
        (work / image).mkdir(exist_ok=True)
        return Image(work / image, ImageConfig())
    release = image.removeprefix("debian:").removesuffix("-slim")
    if image != f"debian:{release}-slim":
        raise UnknownStep(f"FROM {image}: only debian:<release>-slim can be made here")
    since = time.monotonic()
    root = work / f"debian-{release}-slim"
    make_debian(release, root, CACHE / "debian")
    print(f"--- {image}, made by debootstrap in {time.monotonic() - since:.0f} s", flush=True)
    images[image] = Image(root, ImageConfig())
    return images[image]


def _run(step: Step, root: Path, config: ImageConfig) -> None:
    argv = list(step.words) if step.is_json else [*config.shell, step.words[0]]
    flags = dict(step.flags)
    binds = []
    mount = flags.pop("mount", None)
    if flags:
        raise UnknownStep(f"line {step.line}: RUN with {', '.join(flags)}")
    if mount is not None:
        options = dict(part.split("=", 1) for part in mount.split(","))
        if set(options) != {"type", "target"} or options["type"] != "cache":
            raise UnknownStep(f"line {step.line}: --mount={mount}")
        kept = CACHE / options["target"].strip("/").replace("/", "-")
        kept.mkdir(parents=True, exist_ok=True)
        (root / options["target"].lstrip("/")).mkdir(parents=True, exist_ok=True)
        binds.append(Bind(kept, options["target"], read_only=False))
    with network_of_the_machine(root) as (network, variables):
        done = subprocess.run(
            entered(
                root,
                argv,
                env={**variables, "HOME": "/root", **config.args, **config.env},
                user=config.user,
                workdir=config.workdir,
                binds=[*binds, *network],
            ),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=_STEP_WITHIN_S,
            check=False,
        )
    if done.returncode:
        raise CleanRootError(f"{done.stdout[-4000:]}\nline {step.line}: RUN ended with {done.returncode}")


@contextmanager
def network_of_the_machine(root: Path) -> Iterator[tuple[list[Bind], Mapping[str, str]]]:
    """What an engine brings in: names of hosts; and the CAs and the index that this machine's pip uses."""
    binds, variables = [], {}
    for outside, inside in ((Path("/etc/resolv.conf"), "/etc/resolv.conf"), (_CA_BUNDLE, _CA_INSIDE)):
        if outside.exists():
            (root / inside.lstrip("/")).touch()
            binds.append(Bind(outside.resolve(), inside))
    if _CA_BUNDLE.exists():
        variables = dict.fromkeys(("PIP_CERT", "REQUESTS_CA_BUNDLE", "SSL_CERT_FILE"), _CA_INSIDE)
    passed_on = {
        "PIP_INDEX_URL",
        "PIP_EXTRA_INDEX_URL",
        "PIP_TRUSTED_HOST",
        "HTTP_PROXY",
        "HTTPS_PROXY",
        "NO_PROXY",
    }
    variables |= {name: value for name, value in os.environ.items() if name.upper() in passed_on}
    try:
        yield binds, variables
    finally:
        (root / _CA_INSIDE.lstrip("/")).unlink(missing_ok=True)


def _copy(step: Step, source: Path, root: Path, config: ImageConfig) -> None:
    if set(step.flags) - {"from"}:
        raise UnknownStep(f"line {step.line}: COPY with {', '.join(step.flags)}")
    *names, target = (expanded(word, {**config.args, **config.env}) for word in step.words)
    into = Path(config.workdir, target)  # an absolute target stays as it is
    here = root / str(into).lstrip("/")
    for name in names:
        found = source / name.lstrip("/")
        if found.is_dir():
            shutil.copytree(found, here, symlinks=True, dirs_exist_ok=True)
        elif found.is_file():
            is_folder = target.endswith(("/", ".")) or here.is_dir() or len(names) > 1
            file = here / found.name if is_folder else here
            file.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(found, file)
        else:
            raise CleanRootError(f"line {step.line}: COPY {name}: not there, or kept out by .dockerignore")


def _fill_context(context: Path) -> None:
    """The files that .dockerignore lets in; it must let in by names of the top level."""
    ignore = (REPOSITORY / ".dockerignore").read_text(encoding="utf-8")
    for name in let_in(sorted(os.listdir(REPOSITORY)), ignore):
        top = REPOSITORY / name
        found = [top] if top.is_file() else [path for path in top.rglob("*") if path.is_file()]
        for path in let_in((str(path.relative_to(REPOSITORY)) for path in found), ignore):
            (context / path).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(REPOSITORY / path, context / path)
