#!/usr/bin/env python3
"""What the proxy's image is made of, as a CycloneDX bill of materials that its schema accepts.

Read off the root that the check `image` left: Debian's packages from dpkg's list, Python's by their metadata.
Written to .cache/deploy/sluice.cdx.json. Every pin of requirements/image.txt for this platform must be in it,
in its version.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from email.parser import Parser
from importlib.metadata import Distribution, distributions
from pathlib import Path
from typing import Final

from cyclonedx.contrib.license.factories import LicenseFactory
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.output.json import JsonV1Dot6
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from image_build import REPOSITORY, work_folder
from packageurl import PackageURL
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

NOT_DONE: Final = 3
WRITTEN: Final = REPOSITORY / ".cache" / "deploy" / "sluice.cdx.json"


def debian_packages(root: Path) -> Iterator[Component]:
    """What dpkg says is installed in a root."""
    release = (root / "etc/debian_version").read_text().strip()
    for paragraph in (root / "var/lib/dpkg/status").read_text(encoding="utf-8").split("\n\n"):
        fields = Parser().parsestr(paragraph)
        if not str(fields.get("Status", "")).endswith(" installed"):
            continue
        name, version = str(fields["Package"]), str(fields["Version"])
        qualifiers = {"arch": str(fields["Architecture"]), "distro": f"debian-{release}"}
        purl = PackageURL("deb", "debian", name, version, qualifiers)
        yield Component(
            name=name, version=version, type=ComponentType.LIBRARY, purl=purl, bom_ref=purl.to_string()
        )


def python_packages(root: Path) -> Iterator[Component]:
    """What Python finds in the image's environment, Sluice itself among it."""
    folders = [str(path) for path in (root / "opt/sluice/lib").glob("python*/site-packages")]
    for found in distributions(path=folders):
        name = canonicalize_name(found.metadata["Name"])
        purl = PackageURL("pypi", None, name, found.version)
        licence = _licence(found)
        yield Component(
            name=name,
            version=found.version,
            type=ComponentType.LIBRARY,
            purl=purl,
            bom_ref=purl.to_string(),
            licenses=[LicenseFactory().make_from_string(licence)] if licence else [],
        )


def _licence(found: Distribution) -> str:
    metadata = found.metadata
    told = next((metadata[key] for key in ("License-Expression", "License") if key in metadata), "")
    return told if len(told) < 100 and "\n" not in told else ""  # else it is the licence's whole text


def pins(lock: Path) -> Iterator[tuple[str, str]]:
    """(name, version) of a lock file's lines that count on this platform."""
    for line in lock.read_text(encoding="utf-8").splitlines():
        if line[:1].isalnum():
            requirement = Requirement(line.rstrip("\\ "))
            if requirement.marker is None or requirement.marker.evaluate():
                (specifier,) = requirement.specifier
                yield canonicalize_name(requirement.name), specifier.version


def main() -> None:
    work = work_folder("proxy")
    if not (work / "is-built").exists():
        print("needs the root that the check `image` makes")
        sys.exit(NOT_DONE)
    debian, python = list(debian_packages(work / "proxy")), list(python_packages(work / "proxy"))
    versions = {component.name: component.version for component in python}
    wrong = [
        f"{n} {v} (has {versions.get(n)})"
        for n, v in pins(REPOSITORY / "requirements/image.txt")
        if versions.get(n) != v
    ]
    if wrong:
        sys.exit(f"not in the image as pinned: {', '.join(wrong)}")
    bom = Bom(components=[*debian, *python])
    sluice = next(component for component in python if component.name == "kafka-sluice")
    image = Component(name="sluice", version=sluice.version, type=ComponentType.CONTAINER)
    bom.metadata.component = image
    bom.register_dependency(image, [*debian, *python])
    text = JsonV1Dot6(bom).output_as_string(indent=2)
    errors = JsonStrictValidator(SchemaVersion.V1_6).validate_str(text)
    if errors is not None:
        sys.exit(f"not a valid CycloneDX document: {errors}")
    WRITTEN.write_text(text, encoding="utf-8")
    print(f"{len(debian)} Debian packages, {len(python)} Python packages: {WRITTEN.relative_to(REPOSITORY)}")


if __name__ == "__main__":
    main()
