// What runs on the GPU. Compiled on the node by NVRTC, whose wheels carry no header: none is included.
// With ZIPLAN_ON_HOST the includer brings the vector type, the thread indices, atomicAdd and a clock.

typedef unsigned int u32;
typedef unsigned long long u64;

static_assert(sizeof(u32) == 4 && sizeof(u64) == 8 && sizeof(uint4) == 16, "sizes that the host counts on");

#ifndef ZIPLAN_ON_HOST
static __device__ u64 nanoseconds() {
  u64 now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  return now;
}
#endif

static __device__ u64 first() { return (u64)blockIdx.x * blockDim.x + threadIdx.x; }
static __device__ u64 stride() { return (u64)gridDim.x * blockDim.x; }

// Word `lane` of every 16 bytes is a bijection (an odd factor) of one xorshift32 of their index, so that
// the pattern does not compress, has no two equal neighbours and costs the GPU few instructions.
static __device__ uint4 pattern(u64 index, u32 seed) {
  u32 x = seed ^ ((u32)index * 2654435761u);
  x ^= x << 13;
  x ^= x >> 17;
  x ^= x << 5;
  uint4 words;
  words.x = x;
  words.y = x * 2246822519u;
  words.z = x * 3266489917u;
  words.w = x * 668265263u;
  return words;
}

// Holds its stream until the host sets `flag`. `gave_up` becomes 1 when that took longer than `patience`
// nanoseconds: whatever was queued behind it has then not started together and must not count.
extern "C" __global__ void ziplan_spin(volatile u32* flag, volatile u32* gave_up, u64 patience) {
  u64 begin = nanoseconds();
  while (*flag == 0) {
    if (nanoseconds() - begin > patience) {
      *gave_up = 1;
      return;
    }
  }
}

extern "C" __global__ void ziplan_fill(uint4* to, u64 count, u32 seed) {
  for (u64 i = first(); i < count; i += stride()) to[i] = pattern(i, seed);
}

// Adds to `wrong` how many of `count` vectors differ from what ziplan_fill wrote.
extern "C" __global__ void ziplan_verify(const uint4* from, u64 count, u32 seed, u64* wrong) {
  u64 mine = 0;
  for (u64 i = first(); i < count; i += stride()) {
    uint4 is = from[i], wanted = pattern(i, seed);
    mine += is.x != wanted.x || is.y != wanted.y || is.z != wanted.z || is.w != wanted.w;
  }
  if (mine != 0) atomicAdd(wrong, mine);
}

// Four vectors a turn: enough loads in flight to fill the memory's latency.
extern "C" __global__ void ziplan_copy(uint4* __restrict__ to, const uint4* __restrict__ from, u64 count) {
  u64 step = stride(), i = first();
  for (; i + 3 * step < count; i += 4 * step) {
    uint4 a = from[i], b = from[i + step], c = from[i + 2 * step], d = from[i + 3 * step];
    to[i] = a;
    to[i + step] = b;
    to[i + 2 * step] = c;
    to[i + 3 * step] = d;
  }
  for (; i < count; i += step) to[i] = from[i];
}

// The sum goes to `sink` in a case that no compiler can rule out, so that everything must be read.
extern "C" __global__ void ziplan_read(const uint4* __restrict__ from, u64 count, u32* sink) {
  u32 sum = 0;
  u64 step = stride(), i = first();
  for (; i + 3 * step < count; i += 4 * step) {
    uint4 a = from[i], b = from[i + step], c = from[i + 2 * step], d = from[i + 3 * step];
    sum ^= a.x ^ a.y ^ a.z ^ a.w ^ b.x ^ b.y ^ b.z ^ b.w;
    sum ^= c.x ^ c.y ^ c.z ^ c.w ^ d.x ^ d.y ^ d.z ^ d.w;
  }
  for (; i < count; i += step) sum ^= from[i].x ^ from[i].y ^ from[i].z ^ from[i].w;
  if (sum == 0x9e3779b9u) *sink = sum;
}
