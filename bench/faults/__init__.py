"""One fault after the other under real clients: what is lost, what is told, how soon it is over."""
