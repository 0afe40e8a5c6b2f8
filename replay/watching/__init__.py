"""Runs that are being written, in the terminal: `kvlife top`."""
