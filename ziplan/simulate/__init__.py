"""One training step played event by event, over links that share bandwidth and buffers that run out."""
