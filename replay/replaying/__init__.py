"""Running a log again under the checker: `kvlife replay`."""
