"""Programs that drive one client library each: JSON says what to do, lines of output what came of it."""
