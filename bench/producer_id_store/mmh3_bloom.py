"""A Bloom filter that was not taken, mmh3 over a bytearray: what it costs to set the bits in Python."""

import math

import mmh3

_WORD = 2**64 - 1


class Mmh3Bloom:
    """One filter with Kirsch–Mitzenmacher double hashing."""

    def __init__(self, ids: int, rate: float) -> None:
        self._bits = math.ceil(-ids * math.log(rate) / math.log(2) ** 2)
        self._hashes = max(1, round(self._bits / ids * math.log(2)))
        self._bytes = bytearray((self._bits + 7) // 8)

    def admit(self, producer_id: int, now_ms: float) -> None:
        """Set the bits of an id."""
        first, step = mmh3.hash64(producer_id.to_bytes(8, "little"), signed=False)
        for _ in range(self._hashes):
            bit = first % self._bits
            self._bytes[bit >> 3] |= 1 << (bit & 7)
            first = first + step & _WORD

    def seen(self, producer_id: int, now_ms: float) -> bool:
        """Are all its bits set?"""
        first, step = mmh3.hash64(producer_id.to_bytes(8, "little"), signed=False)
        for _ in range(self._hashes):
            bit = first % self._bits
            if not self._bytes[bit >> 3] >> (bit & 7) & 1:
                return False
            first = first + step & _WORD
        return True

    @property
    def size_bytes(self) -> int:
        """The size of the filter."""
        return len(self._bytes)
