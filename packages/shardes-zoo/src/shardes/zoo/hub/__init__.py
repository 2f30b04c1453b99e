"""The Hugging Face Hub, through huggingface_hub alone: downloads that are verified, and uploads."""
