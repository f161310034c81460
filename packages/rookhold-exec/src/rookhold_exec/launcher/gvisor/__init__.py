"""A job in a gVisor sandbox: one runsc, one bundle and one supervisor for each job.

`config.json` and `bootstrap.sh` beside this file are what a reviewer reads: the whole OCI
configuration, with the places that are filled for each job, and the first program in the sandbox.
"""
