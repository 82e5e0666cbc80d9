"""The long run of faults: as many as fit into the minutes, in random order, then the proof."""
