"""Other ways to attend: pure functions of queries, keys and values after rope. One file a method."""
