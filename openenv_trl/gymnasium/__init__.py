"""Gymnasium and OpenEnv joined, both ways: Gymnasium environments served, and servers used as Gymnasium environments."""
