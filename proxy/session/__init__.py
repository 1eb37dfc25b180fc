"""One client connection as a pure state machine: no clock, socket, loop or file below this folder."""
