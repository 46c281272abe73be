"""Parameters of a machine and its runtime fitted from runs on it, and how far predictions are off after that.

`logs` and `trainer` read what a run printed, `runs` makes measured runs of it, `parameters` says what can be
fitted, `fit` fits it from the phases that identify it, `overlay` writes what `--calibration` takes.
"""
