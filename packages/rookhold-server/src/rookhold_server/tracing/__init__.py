"""What follows a request or a job through the server: ids for the log, spans for a collector."""
