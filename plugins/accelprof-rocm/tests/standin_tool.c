/* The part of a stand-in tool that lives in the worker: it hears ROCTX through standin_roctx and writes when the process ends
 * in order (atexit), never on SIGKILL or _exit. What it does follows docs/rocm.md:
 *
 * - rocprofv3: paused at first when selected regions are asked for, then resume and pause switch; a push while paused is not
 *   stacked, a pop takes what is there
 * - rocprof-sys (STANDIN_STYLE=sys) up to 7.12: pause and resume do nothing, a pop without a push aborts the process
 * - rocprof-sys from 7.13 (built with -DREGIONS), by AMD's source, ROCm/rocm-systems,
 *   projects/rocprofiler-systems/source/lib/rocprof-sys/library/rocprofiler-sdk/:
 *     trace_control.cpp:32 the value of SELECTED_REGIONS is split at commas, and a filter is active when a name is left
 *     trace_control.cpp:49 handle_range_start: a started range whose message is one of the names; recording resumes with the
 *       first one, unless the program has paused
 *     trace_control.cpp:71 handle_range_stop: it pauses with the last one; a pause of the program's ends with it
 *     trace_control.cpp:107 handle_pause: ignored outside a region or when paused already
 *     trace_control.cpp:131 handle_resume: ignored unless the program paused, and outside a region
 *     trace_control.cpp:180 should_write_markers
 *     roctx_client.cpp:196 roctxRangeStop on a thread that has started none is skipped, and ends no region
 *     roctx_client.cpp:182 roctxRangePop on a thread that has pushed none is skipped
 * - it takes itself out of LD_PRELOAD (rocprof-sys), or leaves it there for every child (rocprofv3)
 *
 * Each range becomes a marker record, one host call inside it and one kernel launched by that call.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define MOST 100000
typedef struct {
  char *text;
  long thread;
  uint64_t start, end;
  int mark, open, stacked, started, write;
} event_t;

static event_t events[MOST];
static int count = 0, active = 1, written = 0, sys = 0;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static uint64_t now(void) {
  struct timespec t;
  clock_gettime(CLOCK_BOOTTIME, &t);
  return (uint64_t)t.tv_sec * 1000000000ull + t.tv_nsec;
}

static const char *setting(const char *name);

static int is(const char *value) {
  return value && (!strcmp(value, "1") || !strcasecmp(value, "true") || !strcasecmp(value, "on"));
}

/* ---- rocprof-sys from 7.13: regions by name --------------------------------------------------------------------- */

static int filtered = 0, user_paused = 0, active_regions = 0;

static int named(const char *message) {
  char names[4096], *rest = names, *name;
  const char *value = setting("SELECTED_REGIONS");
  snprintf(names, sizeof names, "%s", value ? value : "");
  while ((name = strsep(&rest, ",")))
    if (*name && !strcmp(name, message)) return 1;
  return 0;
}

static event_t *top(long thread, int started) {
  for (int at = count - 1; at >= 0; at--)
    if (events[at].thread == thread && (started ? events[at].started : events[at].stacked)) return &events[at];
  return NULL;
}

static void by_region(const char *kind, const char *message, uint64_t number, long thread) {
  static uint64_t ids[64];
  if (!strcmp(kind, "pause")) {
    if ((filtered && !active_regions) || user_paused) return;
    user_paused = 1, active = 0;
  } else if (!strcmp(kind, "resume")) {
    if (!user_paused || (filtered && !active_regions)) return;
    user_paused = 0, active = 1;
  } else if (!strcmp(kind, "pop") || !strcmp(kind, "stop")) {
    int started = !strcmp(kind, "stop");
    event_t *last = top(thread, started);
    if (!last) return;
    last->end = now();
    last->stacked = last->started = last->open = 0;
    if (!last->write) last->open = 1; /* never written */
    if (!started) return;
    for (int i = 0; i < active_regions; i++)
      if (ids[i] == number) {
        ids[i] = ids[--active_regions];
        if (active_regions) return;
        if (user_paused) user_paused = 0;
        else active = 0;
        return;
      }
  } else if (count < MOST) {
    int mark = !strcmp(kind, "mark"), started = !strcmp(kind, "start");
    if (started && named(message) && active_regions < 64) {
      ids[active_regions++] = number;
      if (active_regions == 1 && !user_paused) active = 1;
    }
    if (mark && !active) return;
    uint64_t at = now();
    events[count++] = (event_t){strdup(message), thread, at, at, mark, !mark, !mark && !started, started, active};
  }
}

void standin_roctx(const char *kind, const char *message, uint64_t number) {
  long thread = syscall(SYS_gettid);
  pthread_mutex_lock(&lock);
#ifdef REGIONS
  if (sys) {
    by_region(kind, message, number, thread);
    pthread_mutex_unlock(&lock);
    return;
  }
#endif
  if (!strcmp(kind, "resume")) active = sys ? active : 1;
  else if (!strcmp(kind, "pause")) active = sys ? active : 0;
  else if (!strcmp(kind, "pop")) {
    event_t *last = top(thread, 0);
    if (last) {
      last->end = now();
      last->stacked = last->open = 0;
    } else if (sys && active) {
      fprintf(stderr, "stand-in: roctxRangePop stack is empty\n");
      abort();
    }
  } else if (active && count < MOST && (!strcmp(kind, "push") || !strcmp(kind, "mark"))) {
    int mark = !strcmp(kind, "mark");
    uint64_t at = now();
    events[count++] = (event_t){strdup(message), thread, at, at, mark, !mark, !mark, 0, 1};
  }
  pthread_mutex_unlock(&lock);
}

/* ---- names ------------------------------------------------------------------------------------------------------- */

static void expand(const char *from, char *to, size_t size) {
  char host[256] = "host", pid[32];
  gethostname(host, sizeof host);
  snprintf(pid, sizeof pid, "%d", getpid());
  size_t n = 0;
  while (*from && n + 300 < size) {
    const char *word = NULL;
    size_t skip = 0;
    if (!strncmp(from, "%pid%", 5)) word = pid, skip = 5;
    else if (!strncmp(from, "%hostname%", 10)) word = host, skip = 10;
    if (word) {
      n += snprintf(to + n, size - n, "%s", word);
      from += skip;
    } else to[n++] = *from++;
  }
  to[n] = 0;
}

static const char *setting(const char *name) {
  char full[128];
  snprintf(full, sizeof full, "ROCPROFSYS_%s", name);
  const char *value = getenv(full);
  if (value) return value;
  snprintf(full, sizeof full, "OMNITRACE_%s", name);
  return getenv(full);
}

/* ---- rocprofv3's JSON -------------------------------------------------------------------------------------------- */

static void json_text(FILE *file, const char *text) {
  fputc('"', file);
  for (const unsigned char *c = (const unsigned char *)text; *c; c++) {
    if (*c == '"' || *c == '\\') fprintf(file, "\\%c", *c);
    else if (*c < 32) fprintf(file, "\\u%04x", *c);
    else fputc(*c, file);
  }
  fputc('"', file);
}

static void write_json(const char *path) {
  FILE *file = fopen(path, "w");
  if (!file) return;
  fprintf(file,
          "{\"rocprofiler-sdk-tool\": [{\"metadata\": {\"pid\": %d, \"node\": {\"hostname\": \"standin\"}},"
          "\"agents\": [{\"id\": {\"handle\": 77}, \"type\": 2, \"logical_node_type_id\": 0, \"name\": \"gfx950\"}],"
          "\"kernel_symbols\": [{\"kernel_id\": 3, \"formatted_kernel_name\": \"standin_kernel\"}],"
          "\"strings\": {\"buffer_records\": [{\"kind\": \"NONE\", \"operations\": []},"
          "{\"kind\": \"MARKER_CORE_RANGE_API\", \"operations\": [\"roctxThreadRangeA\", \"roctxMarkA\"]},"
          "{\"kind\": \"HIP_RUNTIME_API\", \"operations\": [\"hipLaunchKernel\"]},"
          "{\"kind\": \"KERNEL_DISPATCH\", \"operations\": [\"NONE\"]}], \"marker_api\": [",
          getpid());
  for (int i = 0, first = 1; i < count; i++)
    if (!events[i].open) {
      fprintf(file, "%s{\"key\": %d, \"value\": ", first ? "" : ",", i + 1);
      json_text(file, events[i].text);
      fputs("}", file);
      first = 0;
    }
  fputs("]}, \"buffer_records\": {", file);
  const char *names[] = {"marker_api", "hip_api", "kernel_dispatch"};
  for (int part = 0; part < 3; part++) {
    fprintf(file, "%s\"%s\": [", part ? "," : "", names[part]);
    for (int i = count - 1, first = 1; i >= 0; i--) { /* backwards: the real ones are not in order either */
      event_t *e = &events[i];
      if (e->open || (part && e->mark)) continue;
      unsigned long long start = e->start + (part ? 1 : 0), end = part ? e->end + 1 : e->end;
      fprintf(file, "%s{\"kind\": %d, \"operation\": %d, \"thread_id\": %ld, \"correlation_id\": {\"internal\": %d},"
              "\"start_timestamp\": %llu, \"end_timestamp\": %llu", first ? "" : ",", part + 1, part == 0 && e->mark,
              e->thread, part ? 100000 + i : i + 1, start, end);
      if (part == 2)
        fputs(",\"dispatch_info\": {\"agent_id\": {\"handle\": 77}, \"queue_id\": {\"handle\": 1}, \"kernel_id\": 3},"
              "\"stream_id\": {\"handle\": 5}", file);
      fputs("}", file);
      first = 0;
    }
    fputs("]", file);
  }
  fputs("}}]}", file);
  fclose(file);
}

/* ---- rocprof-sys's Perfetto trace -------------------------------------------------------------------------------- */

typedef struct {
  unsigned char bytes[16384];
  size_t size;
} buffer_t;

static void put(buffer_t *b, uint64_t value) {
  do {
    unsigned char byte = value & 0x7f;
    value >>= 7;
    b->bytes[b->size++] = byte | (value ? 0x80 : 0);
  } while (value);
}
static void put_number(buffer_t *b, int field, uint64_t value) {
  put(b, (uint64_t)field << 3);
  put(b, value);
}
static void put_bytes(buffer_t *b, int field, const void *data, size_t size) {
  put(b, (uint64_t)field << 3 | 2);
  put(b, size);
  memcpy(b->bytes + b->size, data, size);
  b->size += size;
}
static void packet(FILE *file, buffer_t *body) {
  buffer_t head = {.size = 0};
  put_bytes(&head, 1, body->bytes, 0);
  head.size = 0;
  put(&head, 1 << 3 | 2);
  put(&head, body->size);
  fwrite(head.bytes, 1, head.size, file);
  fwrite(body->bytes, 1, body->size, file);
}
static void track_event(FILE *file, uint64_t at, int type, uint64_t track, const char *category, const char *name) {
  buffer_t event = {.size = 0}, body = {.size = 0};
  put_number(&event, 9, type);
  put_number(&event, 11, track);
  if (category) put_bytes(&event, 22, category, strlen(category));
  if (name) put_bytes(&event, 23, name, strlen(name) > 8000 ? 8000 : strlen(name));
  put_number(&body, 8, at);
  put_number(&body, 10, 1);
  put_bytes(&body, 11, event.bytes, event.size);
  packet(file, &body);
}

static void write_proto(const char *path) {
  FILE *file = fopen(path, "wb");
  if (!file) return;
  buffer_t process = {.size = 0}, track = {.size = 0}, body = {.size = 0};
  put_number(&process, 1, getpid());
  put_number(&track, 1, 10);
  put_bytes(&track, 3, process.bytes, process.size);
  put_number(&body, 10, 1);
  put_bytes(&body, 60, track.bytes, track.size);
  packet(file, &body);
  const char *stream = "HIP Activity Stream 5";
  track.size = body.size = 0;
  put_number(&track, 1, 11);
  put_number(&track, 5, 10);
  put_bytes(&track, 2, stream, strlen(stream));
  put_number(&body, 10, 1);
  put_bytes(&body, 60, track.bytes, track.size);
  packet(file, &body);
  for (int i = 0; i < count; i++) {
    event_t *e = &events[i];
    if (e->open) continue;
    if (e->mark) {
      track_event(file, e->start, 3, 10, "rocm_marker_api", e->text);
      continue;
    }
    /* a track of its own for each range: slices of one track must nest */
    track.size = body.size = 0;
    put_number(&track, 1, 1000 + i);
    put_number(&track, 5, 10);
    put_number(&body, 10, 1);
    put_bytes(&body, 60, track.bytes, track.size);
    packet(file, &body);
    track_event(file, e->start, 1, 1000 + i, "rocm_marker_api", e->text);
    track_event(file, e->end, 2, 1000 + i, NULL, NULL);
    track_event(file, e->start + 1, 1, 11, "rocm_hip_stream", "standin_kernel");
    track_event(file, e->end + 1, 2, 11, NULL, NULL);
  }
  fclose(file);
}

/* ---- beginning and end ------------------------------------------------------------------------------------------- */

void standin_finalize(void) {
  char path[8192], name[4096];
  pthread_mutex_lock(&lock);
  if (!written) {
    written = 1;
    if (sys) {
      char whole[8192];
      const char *where = setting("OUTPUT_PATH"), *prefix = setting("OUTPUT_PREFIX");
      snprintf(whole, sizeof whole, "%s/%sperfetto-trace-%%pid%%.proto", where ? where : "rocprof-sys-output",
               prefix ? prefix : "");
      expand(whole, path, sizeof path);
      if (is(setting("TRACE"))) write_proto(path);
    } else {
      const char *where = getenv("ROCPROF_OUTPUT_PATH"), *file = getenv("ROCPROF_OUTPUT_FILE_NAME");
      expand(file ? file : "%hostname%/%pid%", name, sizeof name);
      snprintf(path, sizeof path, "%s/%s_results.json", where ? where : ".", name);
      const char *format = getenv("ROCPROF_OUTPUT_FORMAT");
      if (format && strstr(format, "json")) write_json(path);
    }
  }
  pthread_mutex_unlock(&lock);
}

__attribute__((constructor)) static void begin(void) {
  const char *style = getenv("STANDIN_STYLE");
  sys = style && !strcmp(style, "sys");
  if (!sys && is(getenv("ROCPROF_SELECTED_REGIONS"))) active = 0;
#ifdef REGIONS
  const char *names = setting("SELECTED_REGIONS");
  filtered = sys && names && names[strspn(names, ",")];
  if (filtered) active = 0;
#endif
  const char *preload = getenv("LD_PRELOAD");
  if (sys && preload && strstr(preload, "librocprof-sys-dl")) unsetenv("LD_PRELOAD");
  atexit(standin_finalize);
}
