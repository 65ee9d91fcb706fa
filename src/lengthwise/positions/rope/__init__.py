"""Rotary positions: methods that change the frequencies of a trained model."""
