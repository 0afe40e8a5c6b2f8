"""A workload through the engine: `kvlife simulate`."""
