"""Measure what a node really delivers, and write it down as a machine file that every command reads."""
