"""How well the bundled model predicts text."""
