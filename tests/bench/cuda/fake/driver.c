// The entry points of NVIDIA's driver that ziplan uses, before a machine of host memory and planted links.
// Built into a libcuda.so.1 that cuda.bindings finds as it finds the real one.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "model.h"

#define API __attribute__((visibility("default")))
enum {
  OK, INVALID_VALUE, OUT_OF_MEMORY, NOT_INITIALIZED, NO_DEVICE = 100, INVALID_DEVICE, INVALID_IMAGE = 200,
  INVALID_CONTEXT, NO_BINARY_FOR_GPU = 209, PEER_ACCESS_UNSUPPORTED = 217, INVALID_HANDLE = 400,
  NOT_FOUND = 500, NOT_READY = 600
};
enum { HOST = -1 };
#define MOST_ALLOCATIONS 4096

typedef struct { int gpu; } Context;
typedef struct { uint64_t begin; size_t size; int place; } Allocation;
typedef struct { size_t size; unsigned char image[]; } Module;
typedef struct { char name[64]; int loaded; } Function;
typedef struct { uint64_t to, from; size_t size; int flip; } Copy;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int initialized, verified;
static Context contexts[MOST_GPUS];
static __thread Context *current;
static Allocation allocations[MOST_ALLOCATIONS];
static double used[MOST_GPUS];

#define ENTER(cost) do { if (!initialized) return NOT_INITIALIZED; pthread_mutex_lock(&lock); advance(cost); } while (0)
#define LEAVE(value) do { int result_ = (value); pthread_mutex_unlock(&lock); return result_; } while (0)

static int place_of(uint64_t begin, size_t size) { // GPU, HOST, or -2: nobody's
  for (int i = 0; i < MOST_ALLOCATIONS; i++)
    if (allocations[i].size && begin >= allocations[i].begin &&
        begin + size <= allocations[i].begin + allocations[i].size)
      return allocations[i].place;
  return -2;
}

API int cuInit(unsigned flags) {
  (void)flags;
  model_begin();
  if (setup.gpus < 1) return NO_DEVICE;
  for (int i = 0; i < MOST_GPUS; i++) contexts[i].gpu = i;
  initialized = 1;
  return OK;
}
API int cuDriverGetVersion(int *version) { *version = (int)planted("driver", -1, 13000); return OK; }
API int cuDeviceGetCount(int *count) { ENTER(0); *count = setup.gpus; LEAVE(OK); }
API int cuDeviceGet(int *device, int index) {
  *device = index;
  return index >= 0 && index < setup.gpus ? OK : INVALID_DEVICE;
}
API int cuDeviceGetName(char *name, int size, int device) {
  snprintf(name, size, "Planted GPU %d", device);
  return OK;
}
API int cuDeviceTotalMem_v2(size_t *size, int device) { (void)device; *size = setup.memory; return OK; }
API int cuDeviceGetPCIBusId(char *text, int size, int device) {
  snprintf(text, size, "0000:%02X:00.0", 0x1a + device);
  return OK;
}
API int cuDeviceGetAttribute(int *value, int attribute, int device) {
  (void)device;
  *value = attribute == 16   ? 4 // multiprocessors
           : attribute == 75 ? setup.capability / 10
           : attribute == 76 ? setup.capability % 10
                             : 0;
  return OK;
}
API int cuDevicePrimaryCtxRetain(Context **context, int device) { *context = &contexts[device]; return OK; }
API int cuDevicePrimaryCtxSetFlags_v2(int device, unsigned flags) { (void)device, (void)flags; return OK; }
API int cuDevicePrimaryCtxRelease_v2(int device) { (void)device; return OK; }
API int cuCtxSetCurrent(Context *context) { current = context; return OK; }
API int cuDeviceCanAccessPeer(int *can, int device, int peer) { *can = setup.peer && device != peer; return OK; }
API int cuCtxEnablePeerAccess(Context *peer, unsigned flags) {
  (void)peer, (void)flags;
  return setup.peer ? OK : PEER_ACCESS_UNSUPPORTED;
}

static int allocate(uint64_t *pointer, size_t size, int place) {
  if (!size) return INVALID_VALUE;
  if (place >= 0 && used[place] + size > setup.memory) return OUT_OF_MEMORY;
  for (int i = 0; i < MOST_ALLOCATIONS; i++) {
    if (allocations[i].size) continue;
    void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) return OUT_OF_MEMORY;
    allocations[i] = (Allocation){(uint64_t)memory, size, place};
    if (place >= 0) used[place] += size;
    *pointer = (uint64_t)memory;
    return OK;
  }
  return OUT_OF_MEMORY;
}
static int release(uint64_t pointer) {
  finish(all_idle, NULL);
  for (int i = 0; i < MOST_ALLOCATIONS; i++) {
    if (!allocations[i].size || allocations[i].begin != pointer) continue;
    if (allocations[i].place >= 0) used[allocations[i].place] -= allocations[i].size;
    munmap((void *)pointer, allocations[i].size);
    allocations[i].size = 0;
    return OK;
  }
  return INVALID_VALUE;
}
API int cuMemAlloc_v2(uint64_t *pointer, size_t size) {
  ENTER(setup.call_cost);
  LEAVE(current ? allocate(pointer, size, current->gpu) : INVALID_CONTEXT);
}
API int cuMemFree_v2(uint64_t pointer) { ENTER(setup.call_cost); LEAVE(release(pointer)); }
API int cuMemHostAlloc(void **pointer, size_t size, unsigned flags) {
  (void)flags;
  ENTER(setup.call_cost);
  LEAVE(current ? allocate((uint64_t *)pointer, size, HOST) : INVALID_CONTEXT);
}
API int cuMemFreeHost(void *pointer) { ENTER(setup.call_cost); LEAVE(release((uint64_t)pointer)); }
API int cuMemGetInfo_v2(size_t *left, size_t *total) {
  if (!current) return INVALID_CONTEXT;
  *total = setup.memory;
  *left = setup.memory - used[current->gpu];
  return OK;
}

static void latency(Stream *stream) {
  Op *op = op_new(DELAY);
  op->left = setup.latency;
  push(stream, op);
}
static void copy_body(void *argument) {
  Copy *copy = argument;
  memmove((void *)copy->to, (void *)copy->from, copy->size);
  if (copy->flip) ((unsigned char *)copy->to)[copy->size / 2] ^= 4;
  free(copy);
}
static int copy(uint64_t to, uint64_t from, size_t size, Stream *stream) {
  int there = place_of(to, size), here = place_of(from, size);
  if (there < HOST || here < HOST) return INVALID_VALUE; // pageable memory: ziplan has no business with it
  Op *op = op_new(TRANSFER);
  int into = there != HOST && there != here, out = here != HOST && there != here;
  int direct = into && out && setup.peer;
  op->left = size;
  if (direct) {
    op_use(op, GPU_RESOURCE(here, PEER_OUT), 1), op_use(op, GPU_RESOURCE(there, PEER_IN), 1);
  } else if (there == here) {
    op_use(op, there == HOST ? DRAM : GPU_RESOURCE(there, HBM), 2);
  } else {
    if (out) {
      op_use(op, GPU_RESOURCE(here, D2H), 1), op_use(op, GPU_RESOURCE(here, DUPLEX), 1);
      op_use(op, ROOT_RESOURCE(here / setup.gpus_per_root, 1), 1);
    }
    if (into) {
      op_use(op, GPU_RESOURCE(there, H2D), 1), op_use(op, GPU_RESOURCE(there, DUPLEX), 1);
      op_use(op, ROOT_RESOURCE(there / setup.gpus_per_root, 0), 1);
    }
    op_use(op, DRAM, into + out);
  }
  Copy *argument = malloc(sizeof *argument);
  *argument = (Copy){to, from, size, into && setup.corrupt};
  op->body = copy_body, op->argument = argument;
  latency(stream);
  push(stream, op);
  return OK;
}
API int cuMemcpyHtoDAsync_v2(uint64_t to, const void *from, size_t size, Stream *stream) {
  ENTER(setup.call_cost);
  LEAVE(place_of(to, size) >= 0 ? copy(to, (uint64_t)from, size, stream) : INVALID_VALUE);
}
API int cuMemcpyDtoHAsync_v2(void *to, uint64_t from, size_t size, Stream *stream) {
  ENTER(setup.call_cost);
  LEAVE(place_of(from, size) >= 0 ? copy((uint64_t)to, from, size, stream) : INVALID_VALUE);
}
API int cuMemcpyPeerAsync(uint64_t to, Context *there, uint64_t from, Context *here, size_t size, Stream *stream) {
  ENTER(setup.call_cost);
  int right = place_of(to, size) == there->gpu && place_of(from, size) == here->gpu;
  LEAVE(right ? copy(to, from, size, stream) : INVALID_VALUE);
}

typedef struct { uint64_t to; unsigned char value; size_t size; } Set;
static void set_body(void *argument) {
  Set *set = argument;
  memset((void *)set->to, set->value, set->size);
  free(set);
}
API int cuMemsetD8Async(uint64_t to, unsigned char value, size_t size, Stream *stream) {
  ENTER(setup.call_cost);
  int gpu = place_of(to, size);
  if (gpu < 0) LEAVE(INVALID_VALUE);
  Op *op = op_new(TRANSFER);
  Set *set = malloc(sizeof *set);
  *set = (Set){to, value, size};
  op->left = size, op->body = set_body, op->argument = set;
  op_use(op, GPU_RESOURCE(gpu, HBM), 1);
  push(stream, op);
  LEAVE(OK);
}

API int cuStreamCreate(Stream **stream, unsigned flags) {
  (void)flags;
  ENTER(setup.call_cost);
  if (!current) LEAVE(INVALID_CONTEXT);
  *stream = stream_new(current->gpu);
  LEAVE(OK);
}
API int cuStreamDestroy_v2(Stream *stream) {
  ENTER(setup.call_cost);
  finish(stream_idle, stream);
  stream_free(stream);
  LEAVE(OK);
}
API int cuStreamSynchronize(Stream *stream) { ENTER(setup.call_cost); finish(stream_idle, stream); LEAVE(OK); }
API int cuStreamWaitEvent(Stream *stream, Event *event, unsigned flags) {
  (void)flags;
  ENTER(setup.call_cost);
  Op *op = op_new(WAIT);
  op->event = event, op->generation = event->recorded;
  push(stream, op);
  LEAVE(OK);
}
API int cuEventCreate(Event **event, unsigned flags) { (void)flags; *event = calloc(1, sizeof **event); return OK; }
API int cuEventDestroy_v2(Event *event) { (void)event; return OK; } // kept: a queued record may point at it
API int cuEventRecord(Event *event, Stream *stream) {
  ENTER(setup.call_cost);
  Op *op = op_new(RECORD);
  op->event = event, op->generation = ++event->recorded;
  push(stream, op);
  LEAVE(OK);
}
API int cuEventSynchronize(Event *event) { ENTER(setup.call_cost); finish(event_reached, event); LEAVE(OK); }
API int cuEventQuery(Event *event) { ENTER(setup.call_cost); LEAVE(event_reached(event) ? OK : NOT_READY); }
API int cuEventElapsedTime(float *milliseconds, Event *begin, Event *end) {
  if (!begin->recorded || !end->recorded) return INVALID_HANDLE;
  if (!event_reached(begin) || !event_reached(end)) return NOT_READY;
  *milliseconds = (float)((end->time - begin->time) * 1e3);
  return OK;
}
API int cuEventElapsedTime_v2(float *milliseconds, Event *begin, Event *end) {
  return cuEventElapsedTime(milliseconds, begin, end);
}

API int cuModuleLoadData(Module **module, const void *data) {
  ENTER(setup.call_cost);
  const unsigned char *image = data;
  if (memcmp(image, "\177ELF", 4)) LEAVE(INVALID_IMAGE);
  uint64_t table;
  uint32_t flags;
  uint16_t machine, entry, entries;
  memcpy(&table, image + 40, 8), memcpy(&flags, image + 48, 4), memcpy(&machine, image + 18, 2);
  memcpy(&entry, image + 58, 2), memcpy(&entries, image + 60, 2);
  if (machine != 190) LEAVE(INVALID_IMAGE); // EM_CUDA
  // The architecture is in the lowest byte of the flags up to sm_90 of CUDA 12, in the next one elsewhere.
  int is = (flags >> 24) ? (flags >> 8) & 0xff : flags & 0xff;
  if (is / 10 != setup.capability / 10 || is % 10 > setup.capability % 10) LEAVE(NO_BINARY_FOR_GPU);
  size_t size = table + (size_t)entry * entries;
  *module = malloc(sizeof **module + size);
  (*module)->size = size;
  memcpy((*module)->image, image, size);
  LEAVE(OK);
}
API int cuModuleUnload(Module *module) { free(module); return OK; }
API int cuModuleGetFunction(Function **function, Module *module, const char *name) {
  ENTER(setup.call_cost);
  if (!memmem(module->image, module->size, name, strlen(name) + 1)) LEAVE(NOT_FOUND);
  *function = calloc(1, sizeof **function);
  snprintf((*function)->name, sizeof (*function)->name, "%s", name);
  LEAVE(OK);
}

static int no_spin(void *nothing) { (void)nothing; return !spin_held(); }

API int cuLaunchKernel(Function *function, unsigned grid, unsigned grid_y, unsigned grid_z, unsigned block,
                       unsigned block_y, unsigned block_z, unsigned shared, Stream *stream, void **arguments,
                       void **extra) {
  (void)grid_y, (void)grid_z, (void)block_y, (void)block_z, (void)shared, (void)extra;
  ENTER(setup.call_cost);
  if (!grid || !block || block > 1024) LEAVE(INVALID_VALUE);
  // A first launch loads the kernel, which waits for the kernels that run, and a held spin does not end.
  if (!function->loaded) finish(no_spin, NULL);
  function->loaded = 1;
  Bound bound = kernel_bind(function->name, grid, block, arguments);
  if (!bound.known) LEAVE(NOT_FOUND);
  int hangs = setup.hang_after >= 0 && !strcmp(function->name, "ziplan_verify") && ++verified > setup.hang_after;
  Op *op = op_new(hangs ? HANG : bound.flag ? SPIN : TRANSFER);
  op->flag = bound.flag, op->gave_up = bound.gave_up;
  op->left = bound.flag ? bound.patience : bound.bytes;
  if (!bound.flag) {
    op->body = kernel_run, op->argument = bound.work;
    op_use(op, GPU_RESOURCE(stream->gpu, HBM), 1);
  }
  latency(stream);
  push(stream, op);
  LEAVE(OK);
}

API int cuGetErrorName(int error, const char **text) {
  *text = error == OK                  ? "CUDA_SUCCESS"
          : error == OUT_OF_MEMORY     ? "CUDA_ERROR_OUT_OF_MEMORY"
          : error == NO_DEVICE         ? "CUDA_ERROR_NO_DEVICE"
          : error == NO_BINARY_FOR_GPU ? "CUDA_ERROR_NO_BINARY_FOR_GPU"
                                       : "CUDA_ERROR_OF_THE_FAKE_DRIVER";
  return OK;
}
API int cuGetErrorString(int error, const char **text) { return cuGetErrorName(error, text); }

// NVRTC asks the driver for a private table, and goes without it where there is none.
API int cuGetExportTable(const void **table, const void *id) { (void)id; *table = NULL; return NOT_FOUND; }

// For tests: the host worked for so long. And the virtual time.
API double fake_host_work(double seconds) {
  pthread_mutex_lock(&lock);
  advance(seconds);
  double moment = now;
  pthread_mutex_unlock(&lock);
  return moment;
}

API int cuGetProcAddress_v2(const char *name, void **function, int version, uint64_t flags, int *status) {
  static void *self;
  Dl_info info;
  char newer[128];
  (void)version, (void)flags;
  if (!self && dladdr((void *)cuInit, &info)) self = dlopen(info.dli_fname, RTLD_NOW | RTLD_NOLOAD);
  snprintf(newer, sizeof newer, "%s_v2", name);
  *function = dlsym(self, newer);
  if (!*function) *function = dlsym(self, name);
  if (planted("old", -1, 0) && !strcmp(name, "cuDevicePrimaryCtxSetFlags")) *function = NULL;
  if (status) *status = *function ? 0 : 1;
  return *function ? OK : NOT_FOUND;
}
API int cuGetProcAddress(const char *name, void **function, int version, uint64_t flags) {
  return cuGetProcAddress_v2(name, function, version, flags, NULL);
}
