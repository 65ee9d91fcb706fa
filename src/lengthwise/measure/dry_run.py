"""What a measurement would do, before any weight is loaded: `--dry-run`."""
