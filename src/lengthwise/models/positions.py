"""Old name of `position_limits`."""

from lengthwise.models.position_limits import max_positions, rope_parameters, trained_length

__all__ = ["max_positions", "rope_parameters", "trained_length"]
