"""The tests tested: faults put into the arithmetic of the core and of nn, one at a time, and which go unseen."""
