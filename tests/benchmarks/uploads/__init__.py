"""An upload over a bad line."""
