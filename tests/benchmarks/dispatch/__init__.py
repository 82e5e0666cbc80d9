"""How soon a freed slot has its next task, on a whole installation."""
