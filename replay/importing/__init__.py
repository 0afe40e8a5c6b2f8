"""What other engines recorded: `kvlife import`."""
