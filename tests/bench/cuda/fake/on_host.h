// What kernels.cu needs to be compiled for the host: a kernel is then a function of one thread.
#pragma once
#include <cstddef>
#include <cstdint>
#include <ctime>

#define ZIPLAN_ON_HOST
#define __global__
#define __device__

struct alignas(16) uint4 {
  unsigned x, y, z, w;
};
struct Index {
  unsigned x, y, z;
};
static thread_local Index gridDim, blockDim, blockIdx, threadIdx;

static inline unsigned long long atomicAdd(unsigned long long *to, unsigned long long value) {
  unsigned long long before = *to;
  *to += value;
  return before;
}

static inline unsigned long long nanoseconds() {
  timespec moment;
  clock_gettime(CLOCK_MONOTONIC, &moment);
  return moment.tv_sec * 1000000000ull + moment.tv_nsec;
}

#include "kernels.cu"

// Runs every thread of a grid, one after another.
template <class Kernel> static void run_grid(unsigned grid, unsigned block, Kernel kernel) {
  gridDim = {grid, 1, 1}, blockDim = {block, 1, 1};
  for (unsigned b = 0; b < grid; b++)
    for (unsigned t = 0; t < block; t++) blockIdx = {b, 0, 0}, threadIdx = {t, 0, 0}, kernel();
}
