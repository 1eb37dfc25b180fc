"""TLS on both sides, and a client's certificate turned into its principal."""
