"""The environments and clients that the benchmarks measure.

Written for the public package. For ours, `_servers.py` changes the import lines, and nothing else.
"""
