"""The platform under load while its parts are killed, stopped and restarted; then the proof."""
