"""A long client id is kept as its beginning and a digest: bounded, never shared, found by the same limits."""

from __future__ import annotations

from sluice.quotas.entity import DEFAULT, Prefix, QuotaEntity, Tenant
from sluice.quotas.exempt import ExemptRule
from sluice.quotas.kinds import QuotaKind
from sluice.quotas.limits.client_ids import MAX_CLIENT_ID, ClientIds
from sluice.quotas.limits.limits import QuotaLimits
from sluice.quotas.names import MAX_NAME

LONG = "\U0001f600" + "x" * 32_763
RATE = {"producer_byte_rate": 1_000}


def limits_of(*entities: QuotaEntity) -> QuotaLimits:
    return QuotaLimits([(entity, RATE) for entity in entities], tenants={"t": ["bob"]})


def test_a_client_id_of_usual_length_is_kept_as_it_is() -> None:
    for client_id in ("", "app", "x" * MAX_CLIENT_ID, "\U0001f600" * MAX_CLIENT_ID):
        assert ClientIds().kept(client_id) is client_id


def test_a_long_client_id_is_kept_short_and_begins_as_it_is_told() -> None:
    kept = ClientIds().kept(LONG)
    assert len(kept) == MAX_CLIENT_ID + 1 + 32
    assert kept[:MAX_CLIENT_ID] == LONG[:MAX_CLIENT_ID]
    assert MAX_CLIENT_ID >= MAX_NAME, "what is told of a name is told of this, too"
    assert ClientIds().kept("x" + LONG[:-1] + "x") != ClientIds().kept("x" + LONG[:-1] + "y")


def test_no_two_client_ids_are_kept_as_the_same_text() -> None:
    """Not even one that somebody sends as another is kept."""
    ids = ClientIds()
    sent = [LONG, LONG + "x", LONG[:-1], "x" * 257, "x" * 256, "\udfff" + LONG]
    sent += [ids.kept(client_id) for client_id in sent]
    assert len({ids.kept(client_id) for client_id in sent}) == len(set(sent)) == len(sent) - 1


def test_the_digest_is_the_same_in_every_process() -> None:
    assert ClientIds().kept("x" * 257)[256:] == "#6111369e4b587b4a4bf84d6ef4d86968"


def test_a_long_client_id_that_is_named_is_one_object_for_all_who_bring_it() -> None:
    """With a limit of its own, by whomever, or in an exempt rule."""
    for limits in (
        limits_of(QuotaEntity(None, LONG)),
        limits_of(QuotaEntity("alice", LONG)),
        limits_of(QuotaEntity(Tenant("t"), LONG)),
        QuotaLimits([], exempt=[ExemptRule("alice", None, LONG)]),
    ):
        first = limits.client_ids.kept("".join(list(LONG)))
        assert first == LONG
        assert limits.client_ids.kept("".join(list(LONG))) is first


def test_what_stands_for_a_client_id_finds_the_limit_that_it_finds() -> None:
    """Also where a prefix is longer than what is kept otherwise; and not where one differs behind that."""
    prefix = LONG[:300]
    limits = limits_of(
        QuotaEntity("alice", LONG),
        QuotaEntity("alice", Prefix(prefix)),
        QuotaEntity(None, Prefix("x" * 300)),
        QuotaEntity(None, DEFAULT),
    )
    for client_id in (LONG, LONG + "y", LONG[:300], LONG[:299], LONG[:299] + "y" * 9, "x" * 400, "x" * 299):
        for user in ("alice", "carol"):
            kept = limits.client_ids.kept(client_id)
            found, by_kept = (limits.resolve(QuotaKind.PRODUCE, user, name) for name in (client_id, kept))
            assert found is not None
            assert by_kept is not None
            assert by_kept.level is found.level
            assert len(kept) <= 333 or kept == LONG


def test_a_client_id_as_long_as_the_longest_prefix_is_kept_as_it_is() -> None:
    """Else what stands for it would be compared with a prefix beyond its own end."""
    limits = limits_of(QuotaEntity(None, Prefix("x" * 400)))
    assert limits.client_ids.kept("y" * 400) == "y" * 400
    assert limits.client_ids.kept("y" * 401)[:401] == "y" * 400 + "#"
