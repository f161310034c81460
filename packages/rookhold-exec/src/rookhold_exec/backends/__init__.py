"""The executors that come with this wheel."""
