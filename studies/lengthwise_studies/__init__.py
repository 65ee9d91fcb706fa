"""Studies: the papers' tables and figures, and our own, each as one command."""
