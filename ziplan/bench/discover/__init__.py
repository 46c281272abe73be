"""What a node has, read from /sys and /proc below a root that tests can plant."""
