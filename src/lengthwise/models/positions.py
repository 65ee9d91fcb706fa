"""Old name of `position_limits`."""

from lengthwise.models.position_limits import max_positions as max_positions
from lengthwise.models.position_limits import trained_length as trained_length
