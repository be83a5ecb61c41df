"""The application of the kill tests: a shop whose local steps leave a trace each time they happen."""
