"""The first event: `kvlife bisect` and `diff`."""
