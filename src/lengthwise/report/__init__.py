"""Tables, figures and self-contained pages from run folders. Reads results, never models; no torch."""
