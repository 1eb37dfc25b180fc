"""Whether a listener's upstream answers, for /readyz.

A broker that is frozen accepts connections and says nothing, so a connection is no answer. Where clients' own
connections bring none, the proxy asks (upstream_probe.py). After 30 s without any answer (a long pause is not
called frozen) the listener is not ready; with one answer it is. A broker that closes such a connection
unanswered (what stands before it may let nobody ask) counts as one that answers, which is told once; one that
ends TLS with an alert does so to every client, and the listener is not ready.

Answers on connections that are open already show nothing of new ones (a broker whose truststore was replaced,
a certificate of the proxy's that has ended). So when a client's ends before anything was answered on it the
proxy asks at once, on a new connection: one such question a second, whatever clients do.

Brokers that refuse connections while others answer are dialled now and then, too, so that who is back without
a client of its own is not told of as away; and who is not of this cluster any more is forgotten.

While no connection is to be had (circuit.py) the proxy dials every second: where a Service sends no clients
to a pod that is not ready nobody else would find out that the broker is back.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass
from math import inf
from time import monotonic
from typing import Final, Protocol

from sluice.proxy.listener.circuit import Address, Circuits
from sluice.proxy.listener.route import Route
from sluice.proxy.listener.upstream import Upstream
from sluice.proxy.listener.upstream_probe import Heard, UpstreamProbe
from sluice.proxy.runtime.log import get_logger
from sluice.proxy.runtime.tasks import to_beat_s
from sluice.proxy.session.gateway.broker_map import in_text

_MAX_ASKED: Final = 16
"""brokers at a time: any that answers is enough"""
_LOOKED_AT_ONCE: Final = 500
"""connections"""
_MAX_REASONS: Final = 3
"""of brokers that cannot be reached, in one text"""
_REFUSAL_TOLD_EVERY_S: Final = 10.0
"""where some connections are refused, and some not"""

_NOT_REACHED: Final = "its upstream has not been reached yet"
_NOT_SINCE: Final = "its upstream has not answered since it ended TLS"

_log = get_logger()


class Answered(Protocol):
    """A client's session, as far as it is looked at here."""

    @property
    def bytes_to_client(self) -> int: ...


@dataclass(frozen=True, slots=True)
class Patience:
    """How often the upstream is asked, and how long it may say nothing."""

    interval_s: float = 5.0
    retry_s: float = 1.0
    """while no connection is to be had; as long as a circuit is open at most (circuit.MAX_BACK_OFF_MS)"""
    silence_s: float = 30.0
    """longer than the pauses of a broker that goes on afterwards"""

    refused_s: float = 1.0
    """how long those may take that refused connections before, while others answer"""

    new_s: float = 1.0
    """at least between two questions for the sake of clients whose new connections were ended unanswered"""

    @property
    def answer_s(self) -> float:
        """how long one question waits: two are asked, of one broker and of all, before `silence_s` is over"""
        return self.silence_s / 3.0


class UpstreamWatch:
    """Knows whether the upstream of one listener answers."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        name: str,
        upstream: Upstream,
        route: Route,
        circuits: Circuits,
        sessions: Callable[[], Collection[Answered]] = tuple,
        patience: Patience = Patience(),
    ) -> None:
        """`name`: the listener's; `sessions`: those of its clients."""
        self.name = name
        self._probe = UpstreamProbe(loop, upstream, patience.answer_s)
        self._cut_off = upstream.cut_off
        self._asked_for_it_s = -inf
        self._route = route
        self._circuits = circuits
        self._sessions = sessions
        self._patience = patience
        self._was_reached = False
        self._has_answered = False  # since it last ended TLS
        self._why = ""
        self._bytes: dict[Answered, int] = {}
        self._unanswered = 0
        self._unanswered_since_s = 0.0
        self._closes_told = False
        self._refusal = ""
        self._told_refusal = ""
        self._refusal_told_s = -inf
        self._reached_told = False
        self.is_silent = False
        """it takes connections, and has answered nothing for too long"""

    @property
    def answers_nobody(self) -> bool:
        """It takes connections, and is silent, or ends TLS."""
        return (self.is_silent or bool(self._refusal)) and not self._is_away

    @property
    def problem(self) -> str:
        """Why no client should be sent to this listener; empty: nothing is known against it."""
        found = self._problem()
        return found and f"listener {self.name}: {found}"

    def _problem(self) -> str:
        """By what was found last."""
        shown = ", ".join(map(in_text, self._addresses()))
        if self._is_away:
            problem = f"{shown} cannot be reached" if self._was_reached else _NOT_REACHED
            return _with_reason(problem, self._reasons())
        if self._refusal:
            return self._refusal
        if self.is_silent:
            for_s = monotonic() - self._unanswered_since_s
            return f"{shown} refuses no connection, and has not answered for {for_s:.0f} s"
        if not self._has_answered:
            return _with_reason(_NOT_SINCE if self._was_reached else _NOT_REACHED, self._why)
        return ""

    @property
    def _is_away(self) -> bool:
        """No connection is to be had."""
        return not any(map(self._circuits.is_closed, self._addresses()))

    def _reasons(self) -> str:
        reasons = dict.fromkeys(self._circuits.of(address).reason for address in self._addresses())
        return "; ".join(reason for reason in list(reasons)[:_MAX_REASONS] if reason)

    async def run(self) -> None:
        """Look again and again, until cancelled."""
        try:
            while True:
                await self.look()
                await self._look_at_refused()
                patience = self._patience
                is_away = self.problem and not self.is_silent
                await self._pause(patience.retry_s if is_away else patience.interval_s)
        finally:
            self._probe.close()

    async def _pause(self, every_s: float) -> None:
        """Until the next beat, or until new connections are in doubt."""
        with suppress(TimeoutError):
            async with asyncio.timeout(to_beat_s(every_s)):
                await self._cut_off.wait()
                await asyncio.sleep(self._asked_for_it_s + self._patience.new_s - monotonic())
                self._asked_for_it_s = monotonic()

    async def look(self) -> None:
        """Ask, unless clients have been answered since the last look and no new connection is in doubt."""
        afresh = self._cut_off.is_set() or bool(self._refusal)
        self._cut_off.clear()
        if not await self._clients_were_answered() or afresh:
            asked_s = monotonic()
            found = await self._ask(afresh)
            self._why = self._probe.why.get(found, "")
            if found is Heard.NOT_ASKED:  # nothing was learnt; if there is no connection the circuits know
                self._unanswered = self._unanswered if self.is_silent else 0
                if self._is_away:
                    self._refusal = self._told_refusal = ""
                return
            if found is Heard.NOTHING:
                self._not_answered(asked_s)
                return
            if found is Heard.REFUSED:
                self._refused()
                return
            if found is Heard.CLOSED and not self._closes_told:
                self._closes_told = True
                _log.warning(
                    "upstream_takes_no_probe",
                    listener=self.name,
                    reason="it closes a connection that asks for ApiVersions; /readyz goes by connections",
                )
        self._answered()

    async def _look_at_refused(self) -> None:
        """Whether brokers that refused connections take them again, the one asked longest ago first: those
        that are not asked in any case, for others answer, or they are many."""
        now_ms = monotonic() * 1000.0
        known = self._addresses()
        self._circuits.forget(now_ms, set(known))
        addresses = self._circuits.to_be_probed(known, now_ms)[:_MAX_ASKED]
        if not addresses:
            return
        why = dict(self._probe.why)
        with suppress(TimeoutError):
            async with asyncio.timeout(self._patience.refused_s):
                await asyncio.gather(*map(self._probe.ask, addresses))
        self._probe.why = why  # of the question before

    def _refused(self) -> None:
        now_s = monotonic()
        if self._why != self._told_refusal and now_s - self._refusal_told_s >= _REFUSAL_TOLD_EVERY_S:
            self._told_refusal, self._refusal_told_s = self._why, now_s
            self._reached_told = False
            _log.error(
                "upstream_refuses_tls",
                listener=self.name,
                upstream=", ".join(map(in_text, self._addresses())),
                reason=self._why,
                remedy="upstream_tls.certificate_file and key_file, if it asks for a certificate",
            )
        self._refusal = self._why
        self._has_answered = False
        self.is_silent = False  # an alert is no silence
        self._unanswered = 0

    def _answered(self) -> None:
        if not self._reached_told:
            self._reached_told = True
            _log.info("upstream_reached", listener=self.name)
        if self.is_silent:
            silent_s = round(monotonic() - self._unanswered_since_s, 1)
            _log.info("upstream_answers_again", listener=self.name, silent_for_s=silent_s)
        self._was_reached = self._has_answered = True
        self._refusal = self._told_refusal = ""
        self.is_silent = False
        self._unanswered = 0

    def _not_answered(self, asked_s: float) -> None:
        self._refusal = self._told_refusal = ""
        if not self._unanswered:
            self._unanswered_since_s = asked_s
        self._unanswered += 1
        silent_s = monotonic() - self._unanswered_since_s
        # One question is not enough: it may have been the proxy that was paused.
        if not self.is_silent and self._unanswered > 1 and silent_s >= self._patience.silence_s:
            self.is_silent = True
            _log.error(
                "upstream_does_not_answer",
                listener=self.name,
                upstream=", ".join(map(in_text, self._addresses())),
                silent_for_s=round(silent_s, 1),
            )

    async def _clients_were_answered(self) -> bool:
        """Whether a broker has said anything to a client since the last look."""
        before = self._bytes
        now: dict[Answered, int] = {}
        was_answered = False
        for number, session in enumerate(self._sessions()):
            now[session] = got = session.bytes_to_client
            was_answered = was_answered or got != before.get(session, 0)
            if number % _LOOKED_AT_ONCE == _LOOKED_AT_ONCE - 1:
                await asyncio.sleep(0)
        self._bytes = now
        return was_answered

    async def _ask(self, afresh: bool) -> Heard:
        """The first; if it does not answer all the others at once. The best of what was heard."""
        first, *others = self._addresses()[:_MAX_ASKED]
        found = await self._ask_one(first, afresh)
        if found is Heard.ANSWER or not others:
            return found
        questions = {asyncio.ensure_future(self._ask_one(address, afresh)) for address in others}
        try:
            for next_found in asyncio.as_completed(questions):
                found = min(found, await next_found, key=lambda heard: heard.value)
                if found is Heard.ANSWER:
                    break
        finally:
            for question in questions:
                question.cancel()
            await asyncio.gather(*questions, return_exceptions=True)
        return found

    async def _ask_one(self, address: Address, afresh: bool) -> Heard:
        found = await self._probe.ask(address, afresh)
        if found is Heard.ANSWER:
            self._route.reached(address)
        return found

    def _addresses(self) -> Sequence[Address]:
        """All that may answer, those first that would be tried first."""
        first = list(self._route.addresses(None, monotonic() * 1000.0))
        return first + [address for address in self._route.brokers() if address not in first]


def _with_reason(problem: str, reason: str) -> str:
    return f"{problem}: {reason}" if reason else problem
