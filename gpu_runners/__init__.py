"""The runners: one process on one card each, from a dispatch to a stored result."""
