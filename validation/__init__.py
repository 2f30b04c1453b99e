"""Scripts that check the library itself, on real hardware and beside its peers; their results lie in results/."""
