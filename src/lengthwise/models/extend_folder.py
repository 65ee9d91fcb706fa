"""Old name of `saving`."""

from lengthwise.models.saving import plan_extended as plan_extended
from lengthwise.models.saving import save_extended as save_extended
