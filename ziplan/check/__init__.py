"""Judging a config that somebody already has: rules over what is known of it, each finding with its place."""
