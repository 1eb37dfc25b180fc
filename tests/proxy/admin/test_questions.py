"""What stands in a question to the admin socket is taken as it is meant, or refused by its name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import pytest

from sluice.proxy.admin.handlers import AdminDesk
from sluice.proxy.admin.questions import BadRequest
from sluice.proxy.quota_store.client_quotas import Alteration, Result
from sluice.proxy.quota_store.service import QuotaDesk
from testkit.proxy.playbook import limits_of, shared_of

ENTRY: Final[Mapping[str, Any]] = {"entity": {"user": "a"}, "set": {"producer_byte_rate": 5}}
ALTER: Final[Mapping[str, Any]] = {"ask": "alter", "entries": [ENTRY]}
FLAGS: Final[Sequence[object]] = ("yes", "false", "", 1, 0, None, [])
ROWS: Final[Sequence[object]] = ("many", "5", 1.5, True, -1, 201, 10**30, None)


class NothingChanges:
    """A store that is never to be asked."""

    async def alter(
        self, alterations: Sequence[Alteration], *, validate_only: bool, by: str
    ) -> Sequence[Result]:
        raise AssertionError(alterations)


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("request_", "told"),
    [
        *(({**ALTER, "validate_only": flag}, "validate_only must be true or false, is ") for flag in FLAGS),
        *(({"ask": "describe", "all": flag}, "all must be true or false, is ") for flag in FLAGS),
        *(({"ask": "top", "why": flag}, "why must be true or false, is ") for flag in FLAGS),
        *(({"ask": "top", "rows": rows}, "rows must be a whole number from 0 to 200, is ") for rows in ROWS),
        ({"ask": "replication", "rows": 201}, "rows must be a whole number from 0 to 200, is 201"),
        ({"ask": "connections", "rows": 1001}, "rows must be a whole number from 0 to 1000, is 1001"),
        ({"ask": "connections", "sort": 0}, "sort must be one of"),
        ({**ALTER, "validateonly": True}, "validateonly: unknown key; did you mean validate_only?"),
        ({**ALTER, "entries": [{**ENTRY, "set": {"k": 10**400}}]}, "set: k is too large a number: 1000"),
        ({**ALTER, "entries": [{**ENTRY, "set": {"k": "5"}}]}, "set must be an object of numbers; k is '5'"),
    ],
)
async def test_a_wrong_value_is_not_taken_for_the_default(request_: dict[str, Any], told: str) -> None:
    shared = shared_of(limits_of(produce_rate=1_000))
    quotas = QuotaDesk(lambda: shared.quotas.limits, NothingChanges())
    with pytest.raises(BadRequest) as caught:
        await AdminDesk(shared.quotas, shared.producer_ids, list, quotas).answer(request_)
    assert str(caught.value).startswith(told)
