"""One module for each verb; each holds its `command`."""
