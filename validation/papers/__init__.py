"""What the papers report, as far as the hardware here allows."""
