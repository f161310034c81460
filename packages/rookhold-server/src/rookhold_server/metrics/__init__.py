"""What the server counts: where it is noted, and how it is told."""
