"""Golden rows of what attention sees through windows, worked by hand; values are written out."""

ROWS = {
    "windowed_share": [
        ({"window_length": 4096, "sequence_length": 16384}, 7 / 16),
        ({"window_length": 8192, "sequence_length": 4096}, 1),
    ],
    "chunked_share": [
        ({"window_length": 8192, "sequence_length": 32768}, 1 / 4),
        ({"window_length": 8192, "sequence_length": 2048}, 1),
    ],
}
