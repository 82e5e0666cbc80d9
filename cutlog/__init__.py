"""What a person types: the command line, a small client, and the local stack.

This side imports nothing of ours but `schema`; it starts the other packages as processes.
"""
