"""`make demo`: a story of three chapters, in less than three minutes of two cores."""
