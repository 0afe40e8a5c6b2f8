"""Events, and the lives of pages and requests: `kvlife log`, `page` and `request`."""
