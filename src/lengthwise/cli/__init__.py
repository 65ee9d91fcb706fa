"""The command line: one file for each verb, each of which parses, calls one library function and prints."""
