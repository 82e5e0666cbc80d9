"""What a card does for a task: one pipeline for each scene, none of which knows the bus."""
