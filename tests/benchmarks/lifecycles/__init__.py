"""Whole lifecycles a second: from HTTP POST to the SUCCEEDED row, all parts on one machine."""
