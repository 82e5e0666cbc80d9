"""The door: HTTP in, commands out, read models back. Run it with `python -m api`."""
