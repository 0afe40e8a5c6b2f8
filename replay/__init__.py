"""The command `kvlife`, and what its commands run."""
