"""Who holds what in a state: `kvlife inspect`, `leaks` and `why`."""
