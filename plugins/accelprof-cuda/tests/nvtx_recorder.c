/* An NVTX tool that appends one tab-separated line per event to the file named by NVTX_RECORDER_LOG:
 *   pid  tid  kind  domain  message  id  argb  category  payload
 * Built and loaded by the tests (NVTX_INJECTION64_PATH); the interface is in nvtx3/nvtxDetail/nvtxTypes.h. */
#define _GNU_SOURCE
#define NVTX_NO_IMPL
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>
#include "nvtx3/nvToolsExt.h"

static FILE *recorder_log;
static uint64_t last_range;

static const char *text_of(const nvtxEventAttributes_t *event) {
  switch (event->messageType) {
    case NVTX_MESSAGE_TYPE_REGISTERED: return (const char *)event->message.registered;
    case NVTX_MESSAGE_TYPE_ASCII: return event->message.ascii;
    default: return "";
  }
}

static void line(const char *kind, const void *domain, const char *message, uint64_t id, const nvtxEventAttributes_t *event) {
  if (!recorder_log) return;
  fprintf(recorder_log, "%d\t%ld\t%s\t%s\t%s\t%llu\t%08x\t%u\t", getpid(), syscall(SYS_gettid), kind,
          domain ? (const char *)domain : "", message, (unsigned long long)id, event ? event->color : 0, event ? event->category : 0);
  if (event && event->payloadType == NVTX_PAYLOAD_TYPE_INT64) fprintf(recorder_log, "%lld", (long long)event->payload.llValue);
  fputc('\n', recorder_log);
  fflush(recorder_log);
}

/* handles of domains and of registered strings are the strings themselves */
static nvtxDomainHandle_t domain_create(const char *name) { return (nvtxDomainHandle_t)strdup(name); }
static nvtxStringHandle_t register_string(nvtxDomainHandle_t domain, const char *text) {
  (void)domain;
  return (nvtxStringHandle_t)strdup(text);
}
static void name_category(nvtxDomainHandle_t domain, uint32_t category, const char *name) { line("category", domain, name, category, NULL); }
static int push(nvtxDomainHandle_t domain, const nvtxEventAttributes_t *event) {
  line("push", domain, text_of(event), 0, event);
  return -1; /* some tools answer so although the range was taken */
}
static int pop(nvtxDomainHandle_t domain) {
  line("pop", domain, "", 0, NULL);
  return -1;
}
static nvtxRangeId_t start(nvtxDomainHandle_t domain, const nvtxEventAttributes_t *event) {
  uint64_t id = __atomic_add_fetch(&last_range, 1, __ATOMIC_RELAXED);
  line("start", domain, text_of(event), id, event);
  return id;
}
static void end(nvtxDomainHandle_t domain, nvtxRangeId_t id) { line("end", domain, "", id, NULL); }
static void mark(nvtxDomainHandle_t domain, const nvtxEventAttributes_t *event) { line("mark", domain, text_of(event), 0, event); }

static const struct {
  unsigned slot;
  void *function;
} HANDLERS[] = {
    {NVTX_CBID_CORE2_DomainCreateA, (void *)domain_create}, {NVTX_CBID_CORE2_DomainRegisterStringA, (void *)register_string},
    {NVTX_CBID_CORE2_DomainNameCategoryA, (void *)name_category}, {NVTX_CBID_CORE2_DomainRangePushEx, (void *)push},
    {NVTX_CBID_CORE2_DomainRangePop, (void *)pop}, {NVTX_CBID_CORE2_DomainRangeStartEx, (void *)start},
    {NVTX_CBID_CORE2_DomainRangeEnd, (void *)end}, {NVTX_CBID_CORE2_DomainMarkEx, (void *)mark},
};

__attribute__((visibility("default"))) int InitializeInjectionNvtx2(NvtxGetExportTableFunc_t export_table) {
  const NvtxExportTableCallbacks *callbacks = export_table(NVTX_ETID_CALLBACKS);
  NvtxFunctionTable table;
  unsigned size;
  const char *path = getenv("NVTX_RECORDER_LOG");
  if (!callbacks || !callbacks->GetModuleFunctionTable(NVTX_CB_MODULE_CORE2, &table, &size)) return 0;
  for (unsigned i = 0; i < sizeof HANDLERS / sizeof *HANDLERS; i++)
    if (HANDLERS[i].slot < size) *table[HANDLERS[i].slot] = (NvtxFunctionPointer)HANDLERS[i].function;
  recorder_log = path ? fopen(path, "a") : NULL;
  return 1;
}
