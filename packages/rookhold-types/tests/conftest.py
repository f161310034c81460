"""Property tests have no deadline per example: a shared machine pauses whenever it likes."""

from hypothesis import settings

settings.register_profile("patient", deadline=None)
settings.load_profile("patient")
