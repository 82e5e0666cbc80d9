"""Looks at what was uploaded before anything is spent on it: `python -m gpu_runners.probing`.

From the log to the log: `consuming` reads material-events, `uploads` joins the parts and fetches
them, `sandbox` has them looked at in a process of its own (`child`, shut in by `seal`), by the
rules of `validation`; the verdict goes back as a command, and a good file to where its content
stands.
"""
