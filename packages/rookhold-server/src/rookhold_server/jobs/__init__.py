"""The road of a job: accept, queue, dispatch, run, finalise, cancel, recover."""
