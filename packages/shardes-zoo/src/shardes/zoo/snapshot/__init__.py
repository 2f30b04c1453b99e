"""The files of a snapshot, read as if an enemy had written them: weights and tokenizer."""
