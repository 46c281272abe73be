"""Machines as data: parts, tiers, links, nodes, clusters, and the profiles they come from."""
