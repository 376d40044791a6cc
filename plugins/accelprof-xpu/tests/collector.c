/* An ITT collector for tests, loaded by INTEL_LIBITTNOTIFY64: every call goes as a line "ns thread kind domain name id" (tabs)
 * into the file ITT_LOG. It exports a version, so that it gets all groups (with INTEL_ITTNOTIFY_GROUPS=all). */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

typedef struct { volatile int flags; const char *name; } domain_t;       /* __itt_domain */
typedef struct { const char *text; } handle_t;                           /* __itt_string_handle */
typedef struct { unsigned long long d1, d2, d3; } id_t_;                 /* __itt_id */

static void tell(const char *kind, const domain_t *domain, const handle_t *handle, unsigned long long id) {
  const char *path = getenv("ITT_LOG");
  struct timespec now;
  char line[8192];
  if (!path) return;
  clock_gettime(CLOCK_MONOTONIC, &now);
  int size = snprintf(line, sizeof line, "%lld\t%ld\t%s\t%s\t%s\t%llu\n", now.tv_sec * 1000000000ll + now.tv_nsec,
                      syscall(SYS_gettid), kind, domain ? domain->name : "", handle ? handle->text : "", id);
  int file = open(path, O_WRONLY | O_APPEND | O_CREAT, 0644);
  if (file >= 0) {
    if (write(file, line, size < (int)sizeof line ? size : (int)sizeof line) < 0) abort();
    close(file);
  }
}

/* whoever loads a collector asks it for domains and names; room for the fields that are not used here */
domain_t *__itt_domain_create(const char *name) {
  domain_t *made = calloc(1, 128);
  made->flags = 1; /* enabled */
  made->name = strdup(name);
  return made;
}
handle_t *__itt_string_handle_create(const char *text) {
  handle_t *made = calloc(1, 128);
  made->text = strdup(text);
  return made;
}
const char *__itt_api_version(void) { return "accelprof tests"; }
void __itt_task_begin(const domain_t *d, id_t_ task, id_t_ parent, handle_t *name) { tell("begin", d, name, 0); }
void __itt_task_end(const domain_t *d) { tell("end", d, NULL, 0); }
void __itt_task_begin_overlapped(const domain_t *d, id_t_ task, id_t_ parent, handle_t *name) { tell("start", d, name, task.d1); }
void __itt_task_end_overlapped(const domain_t *d, id_t_ task) { tell("stop", d, NULL, task.d1); }
void __itt_resume(void) { tell("resume", NULL, NULL, 0); }
void __itt_pause(void) { tell("pause", NULL, NULL, 0); }
