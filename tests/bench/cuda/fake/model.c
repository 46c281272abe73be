// One virtual clock. A host call costs time, in which the streams go on; a synchronisation moves the clock
// to the moment at which what it waits for is done. Transfers share their links max-min fairly.
#include "model.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

Setup setup;
double now;
static double capacity[RESOURCES];
static Stream *streams;

static int find(const char *key, double *value) {
  const char *text = getenv("FAKE_CUDA");
  size_t length = strlen(key);
  for (const char *at = text ? text : ""; *at;) {
    if (!strncmp(at, key, length) && at[length] == '=') return *value = atof(at + length + 1), 1;
    at += strcspn(at, ";");
    at += *at == ';';
  }
  return 0;
}

double planted(const char *key, int gpu, double otherwise) {
  char own[64];
  double value = otherwise;
  snprintf(own, sizeof own, "%s.%d", key, gpu);
  if (!find(own, &value)) find(key, &value);
  return value;
}

void model_begin(void) {
  const char *names[OF_GPU] = {"hbm", "h2d", "d2h", "duplex", "peer_out", "peer_in"};
  setup.gpus = (int)planted("gpus", -1, 1);
  setup.capability = (int)planted("capability", -1, 90);
  setup.peer = (int)planted("peer", -1, 1);
  setup.driver = (int)planted("driver", -1, 13000);
  setup.gpus_per_root = (int)planted("gpus_per_root", -1, 1);
  setup.memory = planted("memory", -1, 1 << 30);
  setup.call_cost = planted("call_us", -1, 4) * 1e-6;
  setup.latency = planted("latency_us", -1, 1.5) * 1e-6;
  setup.hang_after = (int)planted("hang_after", -1, -1);
  setup.corrupt = (int)planted("corrupt", -1, 0);
  capacity[DRAM] = planted("dram", -1, 1e15);
  for (int gpu = 0; gpu < MOST_GPUS; gpu++) {
    for (int which = 0; which < OF_GPU; which++)
      capacity[GPU_RESOURCE(gpu, which)] = planted(names[which], gpu, 1e15);
    capacity[ROOT_RESOURCE(gpu, 0)] = planted("root_in", gpu, 1e15);
    capacity[ROOT_RESOURCE(gpu, 1)] = planted("root_out", gpu, 1e15);
  }
}

Stream *stream_new(int gpu) {
  Stream *stream = calloc(1, sizeof *stream);
  stream->gpu = gpu;
  stream->next = streams;
  return streams = stream;
}

void stream_free(Stream *stream) {
  Stream **at = &streams;
  while (*at && *at != stream) at = &(*at)->next;
  if (*at) *at = stream->next;
  free(stream);
}

Op *op_new(Kind kind) {
  Op *op = calloc(1, sizeof *op);
  op->kind = kind;
  return op;
}

void op_use(Op *op, int resource, double weight) {
  op->resource[op->uses] = resource;
  op->weight[op->uses++] = weight;
}

static int flowing(const Stream *stream) {
  return stream->head && stream->head->started && stream->head->kind == TRANSFER;
}

// All rates rise together until a resource is full, which holds its users; the rest go on rising.
static void share(void) {
  double left[RESOURCES];
  int open = 0;
  memcpy(left, capacity, sizeof left);
  for (Stream *s = streams; s; s = s->next)
    if (flowing(s)) s->head->rate = -1, open++;
  while (open) {
    double wanted[RESOURCES] = {0}, level = INFINITY;
    int full = -1;
    for (Stream *s = streams; s; s = s->next)
      for (int i = 0; flowing(s) && s->head->rate < 0 && i < s->head->uses; i++)
        wanted[s->head->resource[i]] += s->head->weight[i];
    for (int r = 0; r < RESOURCES; r++)
      if (wanted[r] > 0 && left[r] / wanted[r] < level) level = left[r] / wanted[r], full = r;
    for (Stream *s = streams; s; s = s->next) {
      int held = 0;
      for (int i = 0; flowing(s) && s->head->rate < 0 && i < s->head->uses; i++)
        held |= s->head->resource[i] == full;
      if (!held) continue;
      s->head->rate = level, open--;
      for (int i = 0; i < s->head->uses; i++) left[s->head->resource[i]] -= level * s->head->weight[i];
    }
  }
}

static void pop(Stream *stream) {
  Op *op = stream->head;
  stream->head = op->next;
  if (!stream->head) stream->tail = NULL;
  stream->queued--;
  if (op->body) op->body(op->argument);
  free(op);
}

static int over(Op *op) { // whether it is done at this moment; starts it where it is not started
  if (!op->started) op->started = 1, op->begin = now;
  switch (op->kind) {
  case TRANSFER: return op->left <= 0;
  case DELAY: return now >= op->begin + op->left;
  case RECORD: return op->event->time = now, op->event->done = op->generation, 1;
  case WAIT: return op->event->done >= op->generation;
  case SPIN:
    if (*op->flag) return 1;
    if (now < op->begin + op->left) return 0;
    return *op->gave_up = 1, 1;
  default: return 0;
  }
}

static void settle(void) {
  for (int changed = 1; changed;) {
    changed = 0;
    for (Stream *s = streams; s; s = s->next)
      while (s->head && over(s->head)) pop(s), changed = 1;
  }
}

static double next_moment(void) {
  double next = INFINITY;
  share();
  for (Stream *s = streams; s; s = s->next) {
    Op *op = s->head;
    if (op && op->kind == TRANSFER) next = fmin(next, now + op->left / op->rate);
    if (op && (op->kind == DELAY || op->kind == SPIN)) next = fmin(next, op->begin + op->left);
  }
  return next;
}

static void move_to(double moment) {
  for (Stream *s = streams; s; s = s->next)
    if (flowing(s)) {
      s->head->left -= s->head->rate * (moment - now);
      if (s->head->left <= 1e-12 * s->head->rate) s->head->left = 0; // a picosecond's rounding
    }
  now = moment;
  settle();
}

void advance(double seconds) {
  double until = now + seconds;
  settle();
  for (double next; (next = next_moment()) <= until;) move_to(next);
  move_to(until);
}

void finish(int (*done)(void *), void *argument) {
  settle();
  while (!done(argument)) {
    double next = next_moment();
    while (next == INFINITY) pause(); // a kernel that never ends: the call never returns
    move_to(next);
  }
}

int stream_idle(void *stream) { return !((Stream *)stream)->head; }

int all_idle(void *nothing) {
  (void)nothing;
  for (Stream *s = streams; s; s = s->next)
    if (s->head) return 0;
  return 1;
}

int event_reached(void *event) { return ((Event *)event)->done >= ((Event *)event)->recorded; }

static int has_room(void *stream) { return ((Stream *)stream)->queued < MOST_QUEUED; }

void push(Stream *stream, Op *op) {
  finish(has_room, stream);
  if (stream->tail) stream->tail->next = op;
  else stream->head = op;
  stream->tail = op;
  stream->queued++;
  settle();
}

int spin_held(void) {
  for (Stream *s = streams; s; s = s->next)
    if (s->head && s->head->kind == SPIN && !*s->head->flag) return 1;
  return 0;
}
