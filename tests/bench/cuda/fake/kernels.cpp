// The shipped kernels as the fake driver runs them, and the bytes of GPU memory that each moves.
#include "on_host.h"

#include <cstring>
#include <functional>

#include "model.h"

typedef std::function<void()> Work;

template <class T> static T take(void **arguments, int place) {
  T value;
  memcpy(&value, arguments[place], sizeof value);
  return value;
}

Bound kernel_bind(const char *name, unsigned grid, unsigned block, void **arguments) {
  Bound bound = {1, 0, nullptr, nullptr, nullptr, 0};
  auto keep = [&](double bytes, Work kernel) {
    bound.bytes = bytes;
    bound.work = new Work([=] { run_grid(grid, block, kernel); });
  };
  if (!strcmp(name, "ziplan_spin")) {
    bound.flag = take<volatile u32 *>(arguments, 0), bound.gave_up = take<volatile u32 *>(arguments, 1);
    bound.patience = take<u64>(arguments, 2) * 1e-9;
  } else if (!strcmp(name, "ziplan_fill")) {
    auto to = take<uint4 *>(arguments, 0);
    auto count = take<u64>(arguments, 1);
    auto seed = take<u32>(arguments, 2);
    keep(16.0 * count, [=] { ziplan_fill(to, count, seed); });
  } else if (!strcmp(name, "ziplan_verify")) {
    auto from = take<const uint4 *>(arguments, 0);
    auto count = take<u64>(arguments, 1);
    auto seed = take<u32>(arguments, 2);
    auto wrong = take<u64 *>(arguments, 3);
    keep(16.0 * count, [=] { ziplan_verify(from, count, seed, wrong); });
  } else if (!strcmp(name, "ziplan_copy")) {
    auto to = take<uint4 *>(arguments, 0);
    auto from = take<const uint4 *>(arguments, 1);
    auto count = take<u64>(arguments, 2);
    keep(32.0 * count, [=] { ziplan_copy(to, from, count); });
  } else if (!strcmp(name, "ziplan_read")) {
    auto from = take<const uint4 *>(arguments, 0);
    auto count = take<u64>(arguments, 1);
    auto sink = take<u32 *>(arguments, 2);
    keep(16.0 * count, [=] { ziplan_read(from, count, sink); });
  } else {
    bound.known = 0;
  }
  return bound;
}

void kernel_run(void *work) {
  (*static_cast<Work *>(work))();
  delete static_cast<Work *>(work);
}
