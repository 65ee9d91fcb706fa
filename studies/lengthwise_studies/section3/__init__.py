"""Figures 1, 3, 4 and 5 of the paper and its theory, as studies that `lengthwise reproduce` runs."""
