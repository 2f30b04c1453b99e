"""Reinforcement learning tasks as fitness functions for `shardes`."""
