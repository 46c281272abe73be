// The machine behind the fake driver: streams that work through their queues, and links they share.
#pragma once
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#ifdef __cplusplus
extern "C" {
#endif

#define MOST_GPUS 16
#define MOST_USES 8
#define MOST_QUEUED 1024 // as deep as a stream of the real driver takes work before a call blocks

// What can be shared: the host's memory; of each GPU its memory, its link either way, both ways together,
// its way out to and in from other GPUs; of each root port either way.
enum { HBM, H2D, D2H, DUPLEX, PEER_OUT, PEER_IN, OF_GPU };
enum { DRAM = 0, ROOTS = 1 + MOST_GPUS * OF_GPU, RESOURCES = ROOTS + 2 * MOST_GPUS };
#define GPU_RESOURCE(gpu, which) (1 + (gpu)*OF_GPU + (which))
#define ROOT_RESOURCE(root, which) (ROOTS + 2 * (root) + (which))

typedef enum { TRANSFER, DELAY, RECORD, WAIT, SPIN, HANG } Kind;

typedef struct Event {
  double time;
  uint64_t recorded, done; // generations: how often it was recorded, and reached
} Event;

typedef struct Op {
  struct Op *next;
  Kind kind;
  int started;
  double begin, left, rate; // left: bytes of a TRANSFER, seconds of a DELAY; a SPIN's patience
  int uses, resource[MOST_USES];
  double weight[MOST_USES]; // bytes of a resource that one byte takes
  Event *event;
  uint64_t generation;
  volatile uint32_t *flag, *gave_up;
  void (*body)(void *);
  void *argument;
} Op;

typedef struct Stream {
  struct Stream *next;
  int gpu, queued;
  Op *head, *tail;
} Stream;

typedef struct {
  int gpus, capability, peer, driver, gpus_per_root;
  double memory, call_cost, latency;
  int corrupt;      // a bit flips in every copy to a GPU
  int hang_after;   // so many launches of ziplan_verify end, and no further one
} Setup;

extern Setup setup;
extern double now;

void model_begin(void);
double planted(const char *key, int gpu, double otherwise); // "h2d.1" before "h2d" of $FAKE_CUDA
Stream *stream_new(int gpu);
void stream_free(Stream *stream);
Op *op_new(Kind kind);
void op_use(Op *op, int resource, double weight);
void push(Stream *stream, Op *op);
int spin_held(void);
void advance(double seconds);
void finish(int (*done)(void *), void *argument);
int stream_idle(void *stream);
int all_idle(void *nothing);
int event_reached(void *event);

// kernels.cpp: the shipped kernels on the host. What the kernel will do, bound to copies of its arguments.
typedef struct {
  int known;
  double bytes;
  void *work;
  volatile uint32_t *flag, *gave_up; // of the spin kernel
  double patience;
} Bound;
Bound kernel_bind(const char *name, unsigned grid, unsigned block, void **arguments);
void kernel_run(void *work);

#ifdef __cplusplus
}
#endif
