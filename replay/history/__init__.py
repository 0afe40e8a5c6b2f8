"""The states of a log at any seq, what touched a page or a row, and how something came about."""
