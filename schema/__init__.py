"""The contract: every message that crosses a process boundary, and nothing that moves one.

`ids` names things, `message` is the base of what is written, `commands` and `events` are what is
asked and what happened, `refusals` and `failures` are the closed sets of reasons, `topics` and
`routes` say where each goes, `policy` holds limits, prices and pools as data, `codec` turns bytes
into messages and back. Only `schema.wires` does I/O.
"""
