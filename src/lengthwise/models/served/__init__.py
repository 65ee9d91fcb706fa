"""Served models: endpoints that give log-probabilities over HTTP."""
