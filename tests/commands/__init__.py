"""The rules, told as stories, laws and golden histories."""
