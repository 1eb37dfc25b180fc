"""The file of request costs, ours or one that `sluice calibrate-cost` wrote → RequestCosts, or every problem.

    measured: Kafka 4.3.1, 8 cores …             # for people
    tls: {request_us: 20, response_kib_us: 1}    # what TLS between proxy and broker adds to each
    costs:                                       # the first entry that fits; the last fits every request
      - {api: Produce, compression: gzip, request_us: 120, request_kib_us: 1.5, batch_us: 20, record_us: 0.2}
      - {api: Fetch, versions: 4-12, request_us: 80, response_kib_us: 0.3}
      - {request_us: 100}

In microseconds, of one request, of 1,024 bytes, of one record batch, of one record (request_cost.py).
"""

from __future__ import annotations

from functools import cache
from importlib import resources
from pathlib import Path
from typing import Annotated, Final, Literal

from pydantic import BeforeValidator, Field, ValidationError
from pydantic_core import PydanticCustomError

from sluice.protocol._tables import API_NAMES
from sluice.proxy.config.messages import mistake
from sluice.proxy.config.options import NO_BOOL, Options, Text
from sluice.quotas.files.config_error import ConfigError, Problem
from sluice.quotas.files.load import MAX_SMALL_BYTES, read_text
from sluice.quotas.files.yaml_lines import dotted, parse_yaml
from sluice.usage.request_cost import Coefficients, CostRow, RequestCosts

CODECS: Final = ("none", "gzip", "snappy", "lz4", "zstd")
"""by their number in a batch's attributes"""
_KIB: Final = 1024
_KEYS: Final = {name: key for key, name in API_NAMES.items()}
_SHIPPED: Final = "request_costs.yaml"
_ONE_VERSION: Final = BeforeValidator(lambda value: str(value) if type(value) is int else value)
"""`versions: 12` is a number in YAML"""
Microseconds = Annotated[float, Field(ge=0, le=1e9), NO_BOOL]


class TlsCost(Options):
    """What TLS adds to every request."""

    request_us: Microseconds = 0.0
    request_kib_us: Microseconds = 0.0
    response_kib_us: Microseconds = 0.0

    @property
    def coefficients(self) -> Coefficients:
        """In ms and bytes."""
        return Coefficients(
            self.request_us / 1e3, self.request_kib_us / 1e3 / _KIB, self.response_kib_us / 1e3 / _KIB
        )


class ApiCost(TlsCost):
    """One entry of `costs`."""

    api: Text | None = None
    versions: Annotated[str, Field(pattern=r"^\d{1,3}(-\d{1,3})?$"), _ONE_VERSION] | None = None
    compression: Literal["none", "gzip", "snappy", "lz4", "zstd"] | None = None
    acks: Literal["1", "all"] | None = None
    batch_us: Microseconds = 0.0
    record_us: Microseconds = 0.0

    def row(self) -> CostRow:
        """Raises PydanticCustomError for an API that does not exist."""
        if self.api is not None and self.api not in _KEYS:
            raise PydanticCustomError("api", "no API of Kafka's has this name")
        first, _, last = (self.versions or "").partition("-")
        return CostRow(
            self.coefficients._replace(batch_ms=self.batch_us / 1e3, record_ms=self.record_us / 1e3),
            None if self.api is None else _KEYS[self.api],
            None if not first else (int(first), int(last or first)),
            None if self.compression is None else CODECS.index(self.compression),
            None if self.acks is None else self.acks == "all",
        )


class CostFile(Options):
    """The whole file of request costs."""

    measured: str = ""
    tls: TlsCost = TlsCost()
    costs: Annotated[tuple[ApiCost, ...], Field(min_length=1)]


def api_key_of(api: str) -> int:
    """The key of an API that is named as Kafka names it. Raises KeyError."""
    return _KEYS[api]


class CostTables:
    """The costs of requests to a broker without and with TLS."""

    __slots__ = ("plain", "tls")

    def __init__(self, plain: RequestCosts, tls: Coefficients) -> None:
        self.plain = plain
        self.tls = plain.plus(tls)


def load_request_costs(file: Path | None) -> CostTables:
    """Those in `file`; None: those that Sluice brings. Raises ConfigError."""
    if file is None:
        return shipped_request_costs()
    return parse_request_costs(read_text(file, "request cost", MAX_SMALL_BYTES), str(file))


@cache
def shipped_request_costs() -> CostTables:
    """Measured by us (docs/request-percentage.md)."""
    text = resources.files("sluice.proxy.calibration").joinpath(_SHIPPED).read_text(encoding="utf-8")
    return parse_request_costs(text, _SHIPPED)


def parse_request_costs(text: str, source: str) -> CostTables:
    """The costs in `text`. Raises ConfigError with every problem, naming `source` and the line."""
    document = parse_yaml(text, source)
    try:
        content = CostFile.model_validate(document.value)
    except ValidationError as error:
        raise ConfigError(
            Problem(
                mistake(CostFile, detail),
                path=dotted(detail["loc"]),
                source=source,
                line=document.line_of(detail["loc"]),
            )
            for detail in error.errors(include_url=False)
        ) from None
    rows = []
    for index, entry in enumerate(content.costs):
        try:
            rows.append(entry.row())
        except PydanticCustomError as error:
            path = ("costs", index, "api")
            line = document.line_of(path)
            raise ConfigError([
                Problem(f"{error.message()}; is {entry.api!r}", path=dotted(path), source=source, line=line)
            ]) from None  # fmt: skip
    try:
        return CostTables(RequestCosts(rows), content.tls.coefficients)
    except ValueError as error:
        raise ConfigError([
            Problem(str(error), path="costs", source=source, line=document.line_of(("costs",)))
        ]) from None  # fmt: skip
