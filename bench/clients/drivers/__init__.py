"""Programs that drive one client library each: a JSON file tells them their work, lines of output what came of it."""
