"""This code beside the published shardes 0.1.1: throughput, compile time and memory of a generation."""
