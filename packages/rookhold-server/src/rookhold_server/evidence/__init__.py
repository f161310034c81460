"""What is said about a run: receipt members, digests of what is kept, and what contradicts what.

Values in, values out: nothing here stores, waits or decides when.
"""
