"""What policies learn on real tasks, and how fast a generation of them is beside bare loops and peers."""
