"""How answers look: terminal text, JSON, files. Nothing here computes."""
