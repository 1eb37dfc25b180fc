"""The status API: its addresses, what each may be asked and answers, and the OpenAPI document of it. Pure.

docs/status-api.json is made from this (tools/reference.py), and so is what the proxy serves and checks
requests by.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from sluice.proxy.admin.status.model import (
    Connections,
    ConnectionsQuery,
    Events,
    Nothing,
    Plan,
    PrincipalDetail,
    Principals,
    PrincipalsQuery,
    Problem,
    ProducerIdsList,
    Query,
    ReplicationInfo,
    Summary,
)
from sluice.proxy.config.options import without_titles

API: Final = "/api/v1"
DOCUMENT: Final = f"{API}/openapi.json"
_REFERENCE: Final = "#/components/schemas/{model}"


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One address of the API; GET alone is answered."""

    name: str
    """of what is asked, as the method of StatusDesk that answers it"""
    path: str
    query: type[BaseModel]
    answer: type[BaseModel]
    summary: str
    description: str


ENDPOINTS: Final = (
    Endpoint(
        "summary", f"{API}/summary", Nothing, Summary, "The proxy as a whole", "How many of what there are."
    ),
    Endpoint(
        "principals",
        f"{API}/principals",
        PrincipalsQuery,
        Principals,
        "Principals and their limits",
        "The quota buckets that were used in the last minute: rate, limit, utilisation, throttle, rule. Of "
        "those that fit the question the 1,000 most throttled, then nearest to their limits, can be sorted "
        "and paged through.",
    ),
    Endpoint(
        "principal",
        f"{API}/principals/{{id}}",
        Nothing,
        PrincipalDetail,
        "One principal, with its reasons",
        "The level that applies, the arithmetic, its connections.",
    ),
    Endpoint(
        "connections",
        f"{API}/connections",
        ConnectionsQuery,
        Connections,
        "Client connections",
        "The longest throttled first, then those with most requests in flight.",
    ),
    Endpoint(
        "producer_ids",
        f"{API}/producer-ids",
        Query,
        ProducerIdsList,
        "Producer ids",
        "By principal, where producer ids are limited or counted.",
    ),
    Endpoint(
        "events",
        f"{API}/events",
        Query,
        Events,
        "Recent throttling",
        "Episodes, as the log tells of them: those that go on, and the last 500 that are over.",
    ),
    Endpoint(
        "replication",
        f"{API}/replication",
        Query,
        ReplicationInfo,
        "Followers that catch up",
        "What throttled followers are behind on, how much is left, when they will be there. The search is "
        "for topics.",
    ),
    Endpoint(
        "plan",
        f"{API}/plan",
        Nothing,
        Plan,
        "The last recalibration plan",
        "From admin.status.plan: what the nightly job would change.",
    ),
)


def document() -> dict[str, Any]:
    """The API as an OpenAPI 3.1 document."""
    answers = {endpoint.answer for endpoint in ENDPOINTS} | {Problem}
    ordered = sorted(answers, key=lambda model: model.__name__)
    _, found = models_json_schema([(model, "serialization") for model in ordered], ref_template=_REFERENCE)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Sluice status",
            "version": "1",
            "description": "What one proxy does at this moment. Nothing can be changed through it.",
        },
        "paths": {endpoint.path: {"get": _operation(endpoint)} for endpoint in ENDPOINTS},
        "components": {
            "schemas": dict(sorted(without_titles(found["$defs"]).items())),
            "securitySchemes": {
                "bearer": {"type": "http", "scheme": "bearer"},
                "basic": {
                    "type": "http",
                    "scheme": "basic",
                    "description": "Any user, the token as password.",
                },
            },
        },
        "security": [{}, {"bearer": []}, {"basic": []}],
    }


@cache
def document_text() -> str:
    """The same as JSON: docs/status-api.json."""
    return json.dumps(document(), indent=2) + "\n"


def _operation(endpoint: Endpoint) -> dict[str, Any]:
    parameters = list(_parameters(endpoint))
    problems = {
        "400": "The question is not understood.",
        "401": "A token is needed, and is missing or wrong.",
        "403": "Not from loopback, or under a host name that is not known.",
        "503": "Too many questions wait; ask again in a second.",
    }
    if "{id}" in endpoint.path:
        problems["404"] = "No bucket that was used in the last minute has this id."
    responses: dict[str, Any] = {
        "200": {"description": "The answer.", "content": _content("application/json", endpoint.answer)}
    }
    for status, text in sorted(problems.items()):
        responses[status] = {
            "description": text,
            "content": _content("application/problem+json", Problem),
        }
    return {
        "operationId": endpoint.name,
        "summary": endpoint.summary,
        "description": endpoint.description,
        **({"parameters": parameters} if parameters else {}),
        "responses": responses,
    }


def _parameters(endpoint: Endpoint) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    if "{id}" in endpoint.path:
        pattern = {"type": "string", "pattern": "^[0-9a-f]{16}$"}
        found.append({"name": "id", "in": "path", "required": True, "schema": pattern})
    schema = endpoint.query.model_json_schema()
    for name, field in schema.get("properties", {}).items():
        inlined = _inlined(field, schema.get("$defs", {}))
        description = inlined.pop("description", "")
        found.append({"name": name, "in": "query", "description": description, "schema": inlined})
    return found


def _inlined(field: dict[str, Any], definitions: dict[str, Any]) -> dict[str, Any]:
    """A query's value is a simple one: an enumeration stands where it is used, and none is left out."""
    kinds = [kind for kind in field.get("anyOf", [field]) if kind.get("type") != "null"]
    kind = dict(kinds[0])
    if "$ref" in kind:
        kind = {**definitions[kind.pop("$ref").rpartition("/")[2]], **kind}
        kind.pop("description", None)
    if "description" in field:
        kind["description"] = field["description"]
    if field.get("default") is not None:
        kind["default"] = field["default"]
    kind.pop("title", None)
    return kind


def _content(media_type: str, model: type[BaseModel]) -> dict[str, Any]:
    return {media_type: {"schema": {"$ref": _REFERENCE.format(model=model.__name__)}}}
