/* A ROCTX library that writes down its calls, for tests.
 *
 * Default: the functions of roctracer's libroctx64. With -DSDK: those of the SDK's library (pause, resume, thread id; no
 * version). With -DPUSH_ONLY: a library that lacks nearly everything.
 *
 * Calls go as lines "pid tid kind message number" (tab-separated) to the file ROCTX_RECORDER_LOG names, and to a tool that is
 * in the process: one that exports standin_roctx in the global scope.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

static __thread int depth = 0;
static uint64_t next_id = 0;

typedef void (*sink_t)(const char *kind, const char *message, uint64_t number);

static void tell(const char *kind, const char *message, int64_t number) {
  const char *path = getenv("ROCTX_RECORDER_LOG");
  sink_t sink = (sink_t)dlsym(RTLD_DEFAULT, "standin_roctx");
  if (sink) sink(kind, message, (uint64_t)number);
  if (!path) return;
  char line[8192];
  int size = snprintf(line, sizeof line, "%d\t%ld\t%s\t%s\t%lld\n", getpid(), syscall(SYS_gettid), kind, message,
                      (long long)number);
  if (size >= (int)sizeof line) size = sizeof line - 1;
  int file = open(path, O_WRONLY | O_APPEND | O_CREAT, 0644);
  if (file >= 0) {
    if (write(file, line, size) != size) abort();
    close(file);
  }
}

int roctxRangePushA(const char *message) {
  tell("push", message, depth);
  return depth++;
}
#ifndef PUSH_ONLY
int roctxRangePop(void) {
  if (depth == 0) {
    tell("pop", "", -1);
    return -1;
  }
  tell("pop", "", --depth);
  return depth;
}
void roctxMarkA(const char *message) { tell("mark", message, 0); }
uint64_t roctxRangeStartA(const char *message) {
  uint64_t id = __sync_add_and_fetch(&next_id, 1);
  tell("start", message, id);
  return id;
}
void roctxRangeStop(uint64_t id) { tell("stop", "", id); }
#ifdef SDK
int roctxProfilerPause(uint64_t thread) {
  tell("pause", "", thread);
  return getenv("ROCTX_RECORDER_REFUSES") ? 1 : 0;
}
int roctxProfilerResume(uint64_t thread) {
  tell("resume", "", thread);
  return getenv("ROCTX_RECORDER_REFUSES") ? 1 : 0;
}
int roctxGetThreadId(uint64_t *thread) {
  *thread = (uint64_t)syscall(SYS_gettid);
  return 0;
}
#else
uint32_t roctx_version_major(void) { return 4; }
uint32_t roctx_version_minor(void) { return 1; }
#endif
#endif
