"""What a job costs here, beside what it costs elsewhere; see README.md."""
