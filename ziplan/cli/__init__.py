"""The command line: one file a command, one error boundary, one place that writes."""
