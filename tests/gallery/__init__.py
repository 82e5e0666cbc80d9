"""Everything that the scenes make of real clips and pictures, checked and laid out to look at.

`python -m tests.gallery OUT` starts a platform of its own, submits what `orders` lists, and writes
into OUT: the results (`results/NAME/`), a contact sheet for each (`sheets/NAME.jpg`: the poster and
eight frames), and a table (`gallery.txt`, `gallery.json`) with what was measured and what is wrong.
With `--only PATTERN` only orders whose names match are made. It takes about ten minutes on two
cores, and ends with 1 if anything is wrong. Eyes must do the rest: look at the sheets.
"""
