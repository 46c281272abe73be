"""What is trained: model shapes by operator, and training settings."""
