"""Training runtimes: what each really does with bytes, one folder a runtime."""
