"""What is written down about a run: receipt members, observed specs, and the views of both."""
