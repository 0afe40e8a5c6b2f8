"""One sealed file of a run, under aliases where asked for: `kvlife pack`."""
