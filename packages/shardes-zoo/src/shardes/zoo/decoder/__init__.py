"""A decoder of any architecture, in parts: layers, attention, rotary embedding, the forward pass, generation."""
