"""What travels between a client and an environment server: frames, their JSON, their errors.

No socket is opened here. Source of the wire: the OpenEnv package, version 0.10.0; frames that both sides
agree on are equal to its frames byte for byte.
"""
