"""All that is to be known of one accelerator, in ten minutes and one file."""
