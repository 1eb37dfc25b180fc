"""Usage ↔ throttles: entities, limits, pacing. Knows nothing of frames, sockets or clocks."""
