"""What people build first: a small HTTP server that runs code in bubblewrap and keeps nothing."""
