"""Copying memory by numpy beside the same loop in C: the ratio is told, for a person to read."""

import shutil
import subprocess

import numpy as np
import pytest

from ziplan.bench.host.dram import MIB, _on
from ziplan.bench.timeline import at_once

COPY = r"""
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + 1e-9 * t.tv_nsec;
}
int main(void) {
    size_t n = 128u << 20 >> 3;
    double *a = malloc(8 * n), *b = malloc(8 * n), begin;
    long done = 0;
    for (size_t i = 0; i < n; i++) { a[i] = i; b[i] = 0; }
    for (begin = now(); now() - begin < 2; done++)
        for (size_t i = 0; i < n; i++) b[i] = a[i];
    printf("%g %g\n", 16.0 * n * done / (now() - begin), b[n / 2]);
}
"""


@pytest.mark.slow
def test_copy_beside_c(tmp_path, capsys):
    gcc = shutil.which("gcc")
    if gcc is None:
        pytest.skip("gcc is not installed")
    (tmp_path / "copy.c").write_text(COPY)
    subprocess.run([gcc, "-O3", "-march=native", "copy.c", "-o", "copy"], cwd=tmp_path, check=True)
    theirs = float(
        subprocess.run([tmp_path / "copy"], capture_output=True, text=True, check=True).stdout.split()[0]
    )
    size = 128 * MIB
    done = at_once([_on(0, size, "copy")], 2.0)
    ours = np.median(done.of([0], 2.0 * size).rates(0.2, done.full, 9))
    # Others are at work on the machine that runs tests: only nonsense fails.
    with capsys.disabled():
        print(f" [copy: ours {ours / 1e9:.1f} GB/s, C {theirs / 1e9:.1f} GB/s, ratio {ours / theirs:.3f}]")
    assert 0.1 < ours / theirs < 10
