"""Live streams: who may open one, what flows over it, and the two ways to frame it."""
