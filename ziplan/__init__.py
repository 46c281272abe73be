"""ziplan plans the training of models whose state does not fit in GPU memory."""

__version__ = "0.1.0"
