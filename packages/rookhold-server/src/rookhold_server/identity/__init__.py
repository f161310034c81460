"""Who is calling, what they may do, and how often."""
