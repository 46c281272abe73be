"""What every runtime on PyTorch has in common: terms, and the lines and work that are no runtime's own."""
