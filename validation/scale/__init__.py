"""What a long run of a large population costs, and what the parts of this library that serve it cost."""
