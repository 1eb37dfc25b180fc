"""The structure of the source holds, and what measures it would notice if it did not."""

from __future__ import annotations

import pytest

from testkit.repository.tracked_files import tracked_files
from tools.structure import EXCEPTIONS, GOALS, PRODUCT, PURE, ROOT, imported_modules, measure


@pytest.mark.slow  # as `make structure`
def test_the_structure_of_this_source_is_within_its_goals() -> None:
    sources = {path: (ROOT / path).read_text() for path in tracked_files(ROOT) if path.endswith(".py")}
    found = measure(sources)
    above = {name: found.places()[name] for name, figure in found.figures().items() if figure > GOALS[name]}
    assert above == {}


def test_files_of_a_folder_are_counted_without_those_below_it() -> None:
    found = measure({"proxy/a.py": "", "proxy/b.py": "", "proxy/session/c.py": ""})
    assert found.figures()["largest_folder_files"] == 2


def test_the_lines_of_modules_and_functions_are_counted() -> None:
    function = "def long() -> None:\n" + "    pass\n" * 70
    found = measure({"proxy/a.py": "x = 1\n" * 500, "proxy/b.py": function})
    assert found.figures()["largest_module_lines"] == 500
    assert found.figures()["longest_function_lines"] == 71


def test_generated_tables_may_be_as_long_as_they_are() -> None:
    assert measure({"protocol/_tables.py": "x = 1\n" * 500}).figures()["largest_module_lines"] == 0


@pytest.mark.parametrize(
    "back",
    [
        "from sluice.quotas.a import X",
        "import sluice.quotas.a",
        "from sluice.quotas import a",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from sluice.quotas.a import X",
        "def later() -> None:\n    from sluice.quotas.a import X",
    ],
)
def test_a_cycle_is_one_however_it_is_imported(back: str) -> None:
    found = measure({"quotas/a.py": "from sluice.quotas.b import Y", "quotas/b.py": back})
    assert found.cycles == [["quotas/a.py", "quotas/b.py"]]


def test_a_cycle_through_the_face_of_a_package_is_one() -> None:
    found = measure(
        {
            "proxy/other.py": "from sluice.proxy.zz.b import B",
            "proxy/zz/__init__.py": "from sluice.proxy.other import O",
            "proxy/zz/b.py": "",
        }
    )
    assert found.cycles == [["proxy/other.py", "proxy/zz/__init__.py"]]


def test_a_longer_cycle_is_one_and_what_leads_to_it_is_none() -> None:
    found = measure(
        {
            "bench/a.py": "import bench.b",
            "bench/b.py": "import bench.c",
            "bench/c.py": "import bench.a",
            "bench/d.py": "import bench.a",
        }
    )
    assert found.cycles == [["bench/a.py", "bench/b.py", "bench/c.py"]]


@pytest.mark.parametrize("folder", PURE)
@pytest.mark.parametrize(
    "text",
    [
        "import time",
        "from time import monotonic",
        "import asyncio.events",
        "from socket import socket",
        "import os",
        "from pathlib import Path",
        "def later() -> None:\n    import threading",
        "from sluice.proxy.runtime.log import get_logger",
        "from sluice.proxy.connection.worker import Worker",
        "x = open('file')",
        "from datetime import datetime\nx = datetime.now()",
        "import sys\nx = sys.stdin",
        "from sys import stdout",
        "import sys\nx = sys.modules['time']",
        "from datetime import datetime\nclock = datetime.now",
        "from datetime import datetime\nx = getattr(datetime, 'now')()",
        "read = open",
        "tell = print",
        "x = __import__('time')",
        "from io import FileIO",
        "import io\nx = io.FileIO",
        "import contextlib\nx = contextlib.os",
        "from contextlib import os",
        "import random\nx = random._os",
        "exec('import time')",
        "from sluice.quotas.files.load import load_quotas",
    ],
)
def test_what_reaches_the_world_is_impure_in_each_pure_package(folder: str, text: str) -> None:
    assert len(measure({f"{folder}/deep/a.py": text}).impure) == 1


def test_pure_packages_may_import_each_other() -> None:
    text = "from sluice.quotas.kinds import KINDS\nimport sluice.proxy.session.session\nimport struct"
    assert measure({"proxy/session/a.py": text}).impure == []


def test_outside_of_the_pure_packages_the_world_may_be_reached() -> None:
    assert (
        measure({"proxy/runtime/a.py": "import time, socket", "proxy/session.py": "import os"}).impure == []
    )


def test_the_product_and_the_testkit_import_no_test_and_nothing_for_developers() -> None:
    forbidden = {
        **dict.fromkeys(PRODUCT, ("tests", "deploy", "bench", "testkit", "tools")),
        "testkit": ("tests", "deploy", "bench", "tools"),
    }
    found = [
        f"{path}: {name}"
        for folder, names in forbidden.items()
        for path in tracked_files(ROOT, folder)
        if path.endswith(".py")
        for name in imported_modules((ROOT / path).read_text())
        if name.split(".")[0] in names
    ]
    assert found == []


def test_every_exception_is_a_file_and_has_a_reason() -> None:
    assert all((ROOT / path).is_file() and len(reason) > 20 for path, reason in EXCEPTIONS.items())
