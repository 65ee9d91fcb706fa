"""Old name of `resolve`."""

from lengthwise.models.resolve import check_architecture as check_architecture
