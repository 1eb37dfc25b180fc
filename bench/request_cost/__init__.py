"""How far the costs of request_percentage are from a broker's own figures."""
