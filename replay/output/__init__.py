"""How commands write: lines and columns, names and times in words, files, progress."""
