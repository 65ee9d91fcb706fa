"""Old name of `plain_rope`."""

from lengthwise.positions.rope.plain_rope import plain_frequencies as plain_frequencies
from lengthwise.positions.rope.plain_rope import turning_dimension as turning_dimension
