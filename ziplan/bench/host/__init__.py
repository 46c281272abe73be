"""Host memory, and the optimizer that runs on the host."""
