"""What sessions are given: the settings of their listener, and what all of them share."""

from __future__ import annotations

from dataclasses import dataclass, field

from sluice.proxy.session.delays import DelayLimits, LeftBehind, SessionTimeouts
from sluice.proxy.session.gateway.broker_map import BrokerMap
from sluice.proxy.session.mutations.topic_defaults import TopicDefaults
from sluice.proxy.session.own_topic.own_topic import OwnTopic
from sluice.proxy.session.producer_ids.shared import ProducerIds
from sluice.proxy.session.replication.followers import Replication
from sluice.proxy.session.replication.inter_broker import InterBroker
from sluice.proxy.session.token_owners import TokenOwners
from sluice.quotas.manager import QuotaManager
from sluice.usage.flow import TopicNames
from sluice.usage.records import Recorder
from sluice.usage.request_cost import FLAT_COSTS, RequestCosts


@dataclass(frozen=True, slots=True)
class QuotaApi:
    """The proxy itself answers DescribeClientQuotas and AlterClientQuotas."""

    admins: frozenset[str] = frozenset()
    """principals who may do both"""


@dataclass(frozen=True, slots=True)
class SessionPolicy:
    """What all sessions of one listener are told; none of it changes."""

    delays: DelayLimits = field(default_factory=DelayLimits)
    max_frame_bytes: int = 104_857_600
    max_frame_bytes_before_authentication: int = 524_288
    authentication_required: bool = False
    """the listener's security protocol has SASL: only that and ApiVersions pass until the broker has said
    yes"""
    takes_logins: bool = True
    """a client's login may pass to the broker. Not where the proxy has logged in for him, or his certificate
    has said who he is: the broker could take it for a new login on the proxy's connection (KIP-368)"""
    pass_unknown_apis: bool = True
    oauthbearer_principal_claim: str = "sub"
    request_costs: RequestCosts = FLAT_COSTS
    """what requests cost the broker behind, by the security protocol towards it"""
    broker_map: BrokerMap | None = None
    """of a gateway: addresses of brokers are rewritten. It alone changes: sessions learn from answers"""

    inter_broker: InterBroker = field(default_factory=InterBroker)
    """whose replica ids are believed"""
    replication: Replication | None = None
    """of an inter-broker listener: its followers are mirrored, and throttled where they are to be"""
    quota_api: QuotaApi | None = None
    """None: what asks for quotas, or changes them, passes to the broker"""

    def frame_limit(self, *, authenticated: bool) -> int:
        """The largest size that a request's frame may have, in bytes behind the size."""
        return self.max_frame_bytes if authenticated else self.max_frame_bytes_before_authentication


@dataclass(frozen=True, slots=True)
class SharedState:
    """What all sessions of one process share; all of it is bounded."""

    quotas: QuotaManager
    recorder: Recorder
    session_timeouts: SessionTimeouts = field(default_factory=SessionTimeouts)
    left_behind: LeftBehind = field(default_factory=LeftBehind)
    producer_ids: ProducerIds = field(default_factory=ProducerIds)
    topic_defaults: TopicDefaults = field(default_factory=TopicDefaults)
    own_topic: OwnTopic | None = None
    """which no client but its admins may read or write"""
    topic_names: TopicNames | None = None
    """of the access log; None: there is none, and no session tells topics"""
    token_owners: TokenOwners = field(default_factory=TokenOwners)
    """whose delegation tokens are known"""
