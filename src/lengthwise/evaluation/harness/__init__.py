"""lm-eval as a backend: its tasks and scorers on our model, its limits made explicit, its results in our schema."""
