"""What runs inside the sandbox and just before it: the standard library only, and nothing of the server.

The launcher's process imports this package by its folder, under the name ``inside``, so that neither the server's
packages nor its memory are anywhere near the code that is run.
"""
