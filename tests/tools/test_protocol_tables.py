"""The generator: what it reads from a jar, what it refuses, and what --check says."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

import pytest

from sluice.protocol import _tables
from sluice.protocol.codec.spec_model import SpecError, Versions, load_message, message_from_json
from tools.protocol_tables import generate
from tools.protocol_tables.jar import read_jar
from tools.protocol_tables.throttle import throttle_runs

LICENSE = "// Licensed to nobody // in particular\n"
REQUEST_HEADER = {
    "type": "header",
    "name": "RequestHeader",
    "validVersions": "1-2",
    "flexibleVersions": "2+",
    "fields": [{"name": "ClientId", "type": "string", "versions": "1+", "flexibleVersions": "none"}],
}
RESPONSE_HEADER = {**REQUEST_HEADER, "name": "ResponseHeader", "validVersions": "0-1", "fields": []}


def message(kind: str, fields: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
    return {
        "apiKey": 3,
        "type": kind,
        "name": f"Some{kind.capitalize()}",
        "validVersions": "0-4",
        "flexibleVersions": "3+",
        "fields": fields,
        **more,
    }


def write_jar(folder: Path, *messages: dict[str, Any], version: str = generate.KAFKA_VERSION) -> Path:
    jar = folder / "kafka-clients.jar"
    with zipfile.ZipFile(jar, "w") as archive:
        archive.writestr("kafka/kafka-version.properties", f"commitId=abc\nversion={version}\n")
        for spec in (REQUEST_HEADER, RESPONSE_HEADER, *messages):
            archive.writestr(f"common/message/{spec['name']}.json", LICENSE + json.dumps(spec, indent=1))
    return jar


FIELD = {"name": "Count", "type": "int32", "versions": "0+", "about": "A // in a string is no comment."}


def test_comments_go_but_two_slashes_in_a_string_stay(tmp_path: Path) -> None:
    default = {"name": "Url", "type": "string", "versions": "0+", "default": "http://x"}
    found = read_jar(write_jar(tmp_path, message("request", [FIELD, default]), message("response", [])))
    fields = message_from_json(found.requests[3]).fields
    assert [(field.name, field.default) for field in fields] == [("count", 0), ("url", "http://x")]


@pytest.mark.parametrize(
    ("text", "first", "last"), [("3-13", 3, 13), ("9+", 9, 32767), ("0", 0, 0), ("none", 1, 0)]
)
def test_version_ranges_are_read(text: str, first: int, last: int) -> None:
    assert Versions.parse(text) == Versions(first, last)


@pytest.mark.parametrize("text", ["", "x", "1-2-3", "-", "+"])
def test_anything_else_is_no_version_range(text: str) -> None:
    with pytest.raises(SpecError, match="not a range of versions"):
        Versions.parse(text)


def test_a_common_struct_stands_where_it_is_used(tmp_path: Path) -> None:
    uses = {"name": "Places", "type": "[]Place", "versions": "1+", "nullableVersions": "2+"}
    common = [{"name": "Place", "versions": "0+", "fields": [FIELD]}]
    jar = write_jar(tmp_path, message("request", [uses], commonStructs=common), message("response", []))
    [field] = message_from_json(read_jar(jar).requests[3]).fields
    assert (field.type, field.is_array, field.versions.first, field.nullable.first) == ("struct", True, 1, 2)
    assert [child.name for child in field.fields] == ["count"]


@pytest.mark.parametrize(
    ("request_spec", "complaint"),
    [
        (message("request", [{**FIELD, "obfuscated": True}]), "field Count: unknown keys .'obfuscated'."),
        (message("request", [FIELD], cursed=True), "unknown keys .'cursed'."),
        (message("request", [{**FIELD, "type": "int128"}]), "field Count has the unknown type int128"),
        (message("request", [{**FIELD, "type": "uuid", "default": "x"}]), "a uuid with the default 'x'"),
        (
            message(
                "request",
                [{"name": "A", "type": "[]A", "versions": "0+"}],
                commonStructs=[
                    {"name": "A", "fields": [{"name": "Inner", "type": "[]A", "versions": "0+"}]},
                ],
            ),
            "struct A contains itself",
        ),
        (message("wish", [FIELD]), "unknown kind of message 'wish'"),
        (message("request", [FIELD], apiKey=4), "do not match up"),
    ],
)
def test_what_is_not_understood_is_refused(
    tmp_path: Path, request_spec: dict[str, Any], complaint: str
) -> None:
    with pytest.raises(SpecError, match=complaint):
        read_jar(write_jar(tmp_path, request_spec, message("response", [])))


def test_a_message_that_no_version_speaks_keeps_only_its_name(tmp_path: Path) -> None:
    gone = [
        {"apiKey": 7, "type": kind, "name": f"Gone{kind.capitalize()}", "validVersions": "none"}
        for kind in ("request", "response")
    ]
    found = read_jar(write_jar(tmp_path, *gone, message("request", []), message("response", [])))
    assert (found.removed, list(found.requests)) == ({7: "Gone"}, [3])


def test_the_throttle_field_is_found_from_the_front_from_the_end_or_not_at_all(tmp_path: Path) -> None:
    fields = [
        {"name": "Code", "type": "int16", "versions": "1+"},
        {"name": "Name", "type": "string", "versions": "2+"},
        {"name": "ThrottleTimeMs", "type": "int32", "versions": "1+"},
        {"name": "Tail", "type": "int8", "versions": "2+"},
    ]
    found = read_jar(write_jar(tmp_path, message("request", []), message("response", fields)))
    # v0 has none; v1: behind an int16; v2: an int8 behind it ends the frame; v3-4: tagged fields follow.
    assert throttle_runs(message_from_json(found.responses[3])) == ((1, 1, 0, 2), (2, 2, 1, 5), (3, 4, 2, 0))


def test_versions_on_both_sides_of_one_without_the_field_are_two_runs(tmp_path: Path) -> None:
    fields = [
        {"name": "ThrottleTimeMs", "type": "int32", "versions": "0-1"},
        {"name": "ThrottleTimeMs", "type": "int32", "versions": "3+"},
    ]
    found = read_jar(write_jar(tmp_path, message("request", []), message("response", fields)))
    assert throttle_runs(message_from_json(found.responses[3])) == ((0, 1, 0, 0), (3, 4, 0, 0))


def test_a_tagged_throttle_field_is_refused(tmp_path: Path) -> None:
    field = {"name": "ThrottleTimeMs", "type": "int32", "versions": "3+", "taggedVersions": "3+", "tag": 0}
    found = read_jar(write_jar(tmp_path, message("request", []), message("response", [field])))
    with pytest.raises(SpecError, match="SomeResponse version 3: throttleTimeMs is a tagged field"):
        throttle_runs(message_from_json(found.responses[3]))


def test_an_unstable_last_version_is_no_version_of_the_table(tmp_path: Path) -> None:
    jar = write_jar(
        tmp_path, message("request", [], latestVersionUnstable=True), message("response", [FIELD])
    )
    tables = generate.render_tables(read_jar(jar))
    assert "3: (0, 3)," in tables
    assert "UNSTABLE: Final[dict[int, int]] = {\n    3: 4,\n}" in tables


def test_check_passes_what_write_wrote_and_names_a_file_that_differs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = read_jar(write_jar(tmp_path, message("request", [FIELD]), message("response", [FIELD])))
    texts = {"_tables.py": generate.render_tables(found), "_schemas.py": generate.render_schemas(found)}
    assert generate.write(texts, tmp_path) == 0
    assert generate.check(texts, tmp_path) == 0
    (tmp_path / "_tables.py").write_text(texts["_tables.py"] + "# by hand\n", encoding="utf-8")
    assert generate.check(texts, tmp_path) == 1
    complaint = capsys.readouterr().err
    assert "_tables.py is not what this jar gives" in complaint
    assert "_schemas.py" not in complaint
    (tmp_path / "_schemas.py").unlink()
    assert generate.check(texts, tmp_path) == 1
    assert "_schemas.py is not what" in capsys.readouterr().err


def test_generated_text_is_python_that_holds_the_messages(tmp_path: Path) -> None:
    nested = {"name": "Rows", "type": "[]Row", "versions": "0+", "fields": [FIELD], "nullableVersions": "1+"}
    empty = {"name": "None", "type": "[]Nothing", "versions": "0+", "fields": []}
    jar = write_jar(
        tmp_path, message("request", [FIELD, nested, empty]), message("response", [empty, nested])
    )
    found = read_jar(jar)
    scope: dict[str, Any] = {}
    exec(generate.render_schemas(found), scope)
    assert json.loads(scope["REQUESTS"][3]) == found.requests[3]
    assert json.loads(scope["RESPONSES"][3]) == found.responses[3]
    assert json.loads(scope["REQUEST_HEADER"]) == found.request_header
    assert f"sha256: {found.jar_sha256}" in scope["__doc__"]
    assert generate.render_schemas(read_jar(jar)) == generate.render_schemas(found)


def test_a_jar_of_another_kafka_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    jar = write_jar(tmp_path, message("request", []), message("response", []), version="9.9.9")
    assert generate.main(["--check", "--jar", str(jar)]) == 2
    assert "the jar is of Kafka 9.9.9, wanted is 4.3.1" in capsys.readouterr().err


def test_a_missing_jar_is_one_clear_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert generate.main(["--jar", str(tmp_path / "nothing.jar")]) == 2
    assert "generate: not a kafka-clients jar: nothing.jar" in capsys.readouterr().err


def test_the_environment_names_the_jar(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SLUICE_KAFKA_CLIENTS_JAR", str(tmp_path / "named.jar"))
    assert generate.default_jar() == tmp_path / "named.jar"


def test_the_tables_have_every_api_of_kafka_4_3_1() -> None:
    assert len(_tables.VERSIONS) == 89
    assert {key for key in _tables.API_NAMES if key not in _tables.VERSIONS} == {4, 5, 6, 7}
    assert _tables.VERSIONS.keys() == _tables.FLEXIBLE.keys() == _tables.THROTTLE.keys()
    assert _tables.VERSIONS[0] == (3, 13)
    assert _tables.VERSIONS[22] == (0, 5)
    assert _tables.UNSTABLE == {22: 6}
    assert (_tables.FLEXIBLE[0], _tables.FLEXIBLE[17]) == (9, 32767)


def test_request_and_response_become_flexible_at_the_same_version() -> None:
    """One FLEXIBLE table serves both directions only as long as this holds."""
    for api_key in _tables.VERSIONS:
        request, response = load_message("request", api_key), load_message("response", api_key)
        assert request is not None
        assert response is not None
        assert (request.flexible, request.versions) == (response.flexible, response.versions)


def test_throttle_positions_add_up_to_every_response_version() -> None:
    """240 at a fixed offset, 10 before the end, 11 behind a walk, 41 without: wire-semantics, section 5."""
    counts = [0, 0, 0]
    for runs in _tables.THROTTLE.values():
        for first, last, kind, _ in runs:
            counts[kind] += last - first + 1
    versions = sum(last - first + 1 for first, last in _tables.VERSIONS.values()) + len(_tables.UNSTABLE)
    assert (*counts, versions - sum(counts)) == (240, 10, 11, 41)
