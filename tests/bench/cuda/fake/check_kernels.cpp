// The shipped kernels over many sizes and grids, each array an allocation of its own, under sanitizers.
// Prints the words of one fill, for the test to look at.
#include "on_host.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

static int failures;
#define EXPECT(what) \
  if (!(what)) fprintf(stderr, "%s:%d: count %llu grid %u x %u: %s\n", __FILE__, __LINE__, count, grid, block, #what), failures++

static bool same(const std::vector<uint4> &a, const std::vector<uint4> &b) {
  return a.empty() || !memcmp(a.data(), b.data(), a.size() * sizeof(uint4));
}

static u64 wrong(const std::vector<uint4> &in, u32 seed, unsigned grid, unsigned block) {
  u64 found = 0;
  run_grid(grid, block, [&] { ziplan_verify(in.data(), in.size(), seed, &found); });
  return found;
}

static void one(u64 count, unsigned grid, unsigned block) {
  const u32 seed = 12345;
  std::vector<uint4> from(count), to(count);
  run_grid(grid, block, [&] { ziplan_fill(from.data(), count, seed); });
  EXPECT(wrong(from, seed, grid, block) == 0);
  EXPECT(wrong(from, seed + 1, grid, block) == count);
  run_grid(grid, block, [&] { ziplan_copy(to.data(), from.data(), count); });
  EXPECT(same(from, to));
  u32 sink = 7;
  run_grid(grid, block, [&] { ziplan_read(from.data(), count, &sink); });
  EXPECT(same(from, to) && sink == 7);
  for (u64 bit = 0; bit < count * 128; bit += 37) { // any one bit of a vector is one wrong vector
    ((unsigned char *)to.data())[bit / 8] ^= 1u << bit % 8;
    EXPECT(wrong(to, seed, grid, block) == 1);
    ((unsigned char *)to.data())[bit / 8] ^= 1u << bit % 8;
  }
}

static void read_reads_all() { // with the sum that it looks for, in each word in turn
  for (unsigned word = 0; word < 44; word++) {
    std::vector<uint4> from(11);
    ((u32 *)from.data())[word] = 0x9e3779b9u;
    u64 count = 11;
    unsigned grid = 1, block = 1;
    u32 sink = 0;
    run_grid(grid, block, [&] { ziplan_read(from.data(), count, &sink); });
    EXPECT(sink == 0x9e3779b9u);
  }
}

static void spin() {
  u64 count = 0;
  unsigned grid = 1, block = 1;
  u32 flag = 1, gave_up = 0;
  run_grid(1, 1, [&] { ziplan_spin(&flag, &gave_up, 1000000000ull); });
  EXPECT(gave_up == 0);
  flag = 0;
  run_grid(1, 1, [&] { ziplan_spin(&flag, &gave_up, 1000000ull); });
  EXPECT(gave_up == 1);
}

int main() {
  const u64 counts[] = {0, 1, 2, 3, 4, 5, 15, 16, 17, 63, 100, 257};
  const unsigned grids[][2] = {{1, 1}, {1, 4}, {2, 3}, {3, 32}, {5, 64}};
  for (u64 count : counts)
    for (auto grid : grids) one(count, grid[0], grid[1]);
  read_reads_all();
  spin();
  std::vector<uint4> words(65536);
  run_grid(4, 64, [&] { ziplan_fill(words.data(), words.size(), 0x5eed1e55u); });
  fwrite(words.data(), sizeof(uint4), words.size(), stdout);
  return failures != 0;
}
