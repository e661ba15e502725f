"""The web studio and the HTTP API."""
