"""What only a GPU can tell: links, memory, matrix products, through NVIDIA's driver."""
