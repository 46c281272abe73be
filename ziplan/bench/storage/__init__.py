"""Drives, through files on them: direct I/O by threads, proved to be direct."""
