"""Golden rows of ziplan/laws/host.py, worked by hand; values are written out."""

ROWS = {
    "fresh_memory_time": [
        (  # a million pages: a second over four threads, and 0.15 s of the one that frees them
            {
                "fresh_bytes": 4.096e9,
                "page_bytes": 4096,
                "page_fault_time": 1e-6,
                "page_free_time": 0.15e-6,
                "threads_per_rank": 4,
            },
            0.4,
        )
    ],
    "temporary_bytes": [
        (  # a root and a quotient in bf16 for each of 1e9 parameters of a rank, 0.75 of them in large tensors
            {"params": 8e9, "bytes_per_param": 2, "temporary_count": 2, "dp_degree": 8, "share": 0.75},
            3e9,
        )
    ],
    "measured_gradient_bytes": [
        ({"params": 8e9, "grad_bytes_per_param": 2, "dp_degree": 8, "share": 1}, 2e9),
        ({"params": 8e9, "grad_bytes_per_param": 4, "dp_degree": 8, "share": 0}, 0),
    ],
}
