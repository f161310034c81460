"""Configuration: read once at start from the environment, checked whole before anything else."""
