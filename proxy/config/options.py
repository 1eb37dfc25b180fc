"""What every section of the configuration is made of: checked, frozen values that refuse unknown keys."""

from __future__ import annotations

from collections.abc import Callable
from ipaddress import ip_address, ip_network
from pathlib import Path
from typing import Annotated, Any, ClassVar, Final

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field
from pydantic_core import PydanticCustomError

MAX_INT32: Final = 2**31 - 1


def _no_bool(value: Any) -> Any:
    """`true` is no number, though Python says that it is 1."""
    if isinstance(value, bool):
        raise PydanticCustomError("not_a_number", "must be a number")
    return value


def _no_blank(value: Any) -> Any:
    if isinstance(value, str) and not value.strip():
        raise PydanticCustomError("blank", "must not be blank")
    return value


def _checked(check: Callable[[str], object]) -> AfterValidator:
    """`check` raises ValueError with what would be right."""

    def checked(value: str) -> str:
        try:
            check(value)
        except ValueError as error:
            raise PydanticCustomError("wrong_text", "{reason}", {"reason": str(error)}) from None
        return value

    return AfterValidator(checked)


def host_and_port(text: str) -> tuple[str, int]:
    """`kafka-1:9092` or `[::1]:9092` → its parts. Raises ValueError."""
    host, _, port = text.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        raise ValueError("must be host:port; write an IPv6 address in brackets")
    if not host or not port.isdecimal() or not 1 <= int(port) <= 65535:
        raise ValueError("must be host:port")
    _host(host)
    return host, int(port)


def _host(text: str) -> None:
    """Raises ValueError for what no resolver takes: an address with its port, a URL, a bracket, a blank."""
    if any(character.isspace() for character in text):
        raise ValueError("must be a host alone, without blanks")
    if "://" in text or "/" in text:
        raise ValueError("must be a host name or an address, no URL")
    if ":" not in text and "[" not in text:
        try:
            text.encode("idna")
        except UnicodeError:
            raise ValueError("must be a host name: labels of 1 to 63 letters, joined by dots") from None
        return
    try:
        ip_address(text)
    except ValueError:
        in_brackets = text.startswith("[") and "]" in text
        alone = text[1:].partition("]")[0] if in_brackets else text.partition(":")[0]
        raise ValueError(f"must be a host alone, without its port or brackets; write {alone}") from None


# Bounds stand before it, or they would be missing in the JSON Schema.
NO_BOOL = BeforeValidator(_no_bool)
NO_BLANK = BeforeValidator(_no_blank)
Text = Annotated[str, NO_BLANK]
Host = Annotated[str, NO_BLANK, _checked(_host)]
File = Annotated[Path, NO_BLANK]
BindPort = Annotated[int, Field(ge=0, le=65535), NO_BOOL]
Port = Annotated[int, Field(ge=1, le=65535), NO_BOOL]
Address = Annotated[str, NO_BLANK, _checked(host_and_port)]
Network = Annotated[str, NO_BLANK, _checked(ip_network)]


class Options(BaseModel):
    """A section of the configuration: unknown keys are refused, nothing changes after it is built."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, ser_json_inf_nan="null")

    yielding: ClassVar[frozenset[str]] = frozenset()
    """options whose default yields to other options, while the same value that somebody has set does not"""

    def is_set(self, option: str) -> bool:
        """Whether somebody has set it; to be asked of options that are `yielding`, or a live reload would
        not know that it makes a difference."""
        assert option in self.yielding
        return option in self.model_fields_set

    def setting(self, option: str) -> tuple[Any, bool]:
        """All that makes a difference of an option: its value, and where that matters whether it `is_set`."""
        return getattr(self, option), option in self.yielding and self.is_set(option)


def without_titles(schema: dict[str, Any]) -> dict[str, Any]:
    """A JSON Schema without pydantic's titles, which repeat the keys; a property may be so called, too."""
    return {
        key: without_titles(value) if isinstance(value, dict) else value
        for key, value in schema.items()
        if not (key == "title" and isinstance(value, str))
    }
