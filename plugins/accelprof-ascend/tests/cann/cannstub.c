/* Just enough of CANN for torch_npu's import, device queries, profiler and mstx; what lies below these calls is invented.
 * One object; every lib*.so name torch_npu wants is a symlink to it (glibc de-duplicates by inode).
 *   CANN_STUB_LOG=<file>      every *recorded* call appended as one line (O_APPEND, fork-safe)
 *   CANN_STUB_VERBOSE=1       record the generated return-0 stubs and the rt noise as well
 *   CANN_STUB_DEVICES=N       aclrtGetDeviceCount (default 1)
 *   CANN_STUB_VERSION=8.5.0   aclsysGetCANNVersion; "none" = behave like a CANN without that call
 *   CANN_STUB_SOC=Ascend910B1
 *   CANN_STUB_PROF_DIR=0      no PROF_000001_<ts>_<id>/{host,device_0}; by default aclprofInit makes it and a
 *                             successful aclprofStart puts a file into its device_0/data
 *   CANN_STUB_FAIL=name[,name]  those functions return 500000 (ACL_ERROR_INTERNAL_ERROR)
 *   CANN_STUB_MSPTI_MARKER=1  msptiActivityIsEnabled(..) returns true
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static void rec(const char *fmt, ...) {
    const char *path = getenv("CANN_STUB_LOG");
    if (!path || !*path) return;
    char b[4096];
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    int n = snprintf(b, sizeof b, "%lld.%09ld %d %ld ", (long long)ts.tv_sec, ts.tv_nsec, (int)getpid(),
                     (long)syscall(SYS_gettid));
    va_list ap;
    va_start(ap, fmt);
    int m = vsnprintf(b + n, sizeof b - n - 2, fmt, ap);
    va_end(ap);
    if (m < 0) return;
    n += m; if (n > (int)sizeof b - 2) n = sizeof b - 2;
    b[n++] = '\n';
    int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    if (fd < 0) return;
    ssize_t w = write(fd, b, n); (void)w;
    close(fd);
}
static int verbose(void) { const char *v = getenv("CANN_STUB_VERBOSE"); return v && *v == '1'; }
#define NOISE(...) do { if (verbose()) rec(__VA_ARGS__); } while (0)
static const char *env(const char *k, const char *d) { const char *v = getenv(k); return v && *v ? v : d; }
static int fail(const char *fn) {
    const char *v = getenv("CANN_STUB_FAIL");
    size_t l = strlen(fn);
    for (; v && *v; v = strchr(v, ',') ? strchr(v, ',') + 1 : NULL)
        if (!strncmp(v, fn, l) && (v[l] == 0 || v[l] == ',')) return 500000;
    return 0;
}
/* used by the generated file */
void cannstub_noise(const char *fn) { NOISE("%s", fn); }

/* ---- acl / rt ---------------------------------------------------------------------------- */
#define RT_CONTEXT_NULL 107002
static __thread int cur_dev = -1;
static long handle = 0x1000;
static void *new_handle(void) { return (void *)(__sync_add_and_fetch(&handle, 0x10)); }

int aclInit(const char *p) { rec("aclInit config=%s", p ? p : "(null)"); return fail("aclInit"); }
int aclFinalize(void) { rec("aclFinalize"); return 0; }
void aclAppLog(int level, const char *func, const char *file, uint32_t line, const char *fmt, ...) {
    char m[2048]; va_list ap; va_start(ap, fmt); vsnprintf(m, sizeof m, fmt, ap); va_end(ap);
    if (level >= 3 || verbose()) rec("aclAppLog level=%d %s:%u %s", level, file, line, m);   /* 0 debug 1 info 2 warn 3 error */
}
const char *aclGetRecentErrMsg(void) { return ""; }
const char *aclrtGetSocName(void) { return env("CANN_STUB_SOC", "Ascend910B1"); }
int aclrtGetDeviceCount(uint32_t *n) { *n = atoi(env("CANN_STUB_DEVICES", "1")); return fail("aclrtGetDeviceCount"); }
int aclrtGetDevice(int32_t *d) { if (cur_dev < 0) return RT_CONTEXT_NULL; *d = cur_dev; return 0; }
int aclrtSetDevice(int32_t d) {
    rec("aclrtSetDevice %d", d);
    if (d < 0 || d >= atoi(env("CANN_STUB_DEVICES", "1"))) return 107001; /* ACL_ERROR_RT_INVALID_DEVICEID */
    cur_dev = d; return 0;
}
int aclrtResetDevice(int32_t d) { rec("aclrtResetDevice %d", d); return 0; }
int aclrtGetCurrentContext(void **c) { *c = (void *)(0x100L + cur_dev); return 0; }
int aclrtSetCurrentContext(void *c) { cur_dev = (int)((long)c - 0x100L); return 0; }
int aclrtGetPrimaryCtxState(int32_t d, uint32_t *f, int32_t *a) { if (a) *a = 1; if (f) *f = 0; return 0; }
int aclrtSynchronizeDevice(void) { rec("aclrtSynchronizeDevice"); return 0; }
int aclrtSynchronizeDeviceWithTimeout(int32_t t) { rec("aclrtSynchronizeDeviceWithTimeout %d", t); return 0; }
int aclrtSynchronizeStream(void *s) { NOISE("aclrtSynchronizeStream"); return 0; }
int aclrtSynchronizeStreamWithTimeout(void *s, int32_t t) { NOISE("aclrtSynchronizeStreamWithTimeout"); return 0; }
int aclrtCreateStream(void **s) { *s = new_handle(); return 0; }
int aclrtCreateStreamWithConfig(void **s, uint32_t p, uint32_t f) { *s = new_handle(); return 0; }
int aclrtDestroyStreamForce(void *s) { return 0; }
int aclrtStreamQuery(void *s, int *st) { *st = 0; return 0; }        /* ACL_STREAM_STATUS_COMPLETE */
int aclrtStreamGetId(void *s, int32_t *id) { *id = (int32_t)(((long)s - 0x1000) >> 4); return 0; }
int aclrtCreateEventWithFlag(void **e, uint32_t f) { *e = new_handle(); return 0; }
int aclrtCreateEventExWithFlag(void **e, uint32_t f) { *e = new_handle(); return 0; }
int aclrtQueryEventStatus(void *e, int *st) { *st = 1; return 0; }     /* RECORDED/COMPLETE */
int aclrtQueryEventWaitStatus(void *e, int *st) { *st = 0; return 0; } /* ACL_EVENT_WAIT_STATUS_COMPLETE */
int aclrtEventElapsedTime(float *ms, void *a, void *b) { *ms = 1.0f; return 0; }
int aclrtDeviceCanAccessPeer(int32_t *c, int32_t a, int32_t b) { *c = 1; return 0; }
int aclrtGetMemInfo(int attr, size_t *f, size_t *t) { *f = 60UL << 30; *t = 64UL << 30; return 0; }
int aclrtMalloc(void **p, size_t n, int pol) { NOISE("aclrtMalloc %zu", n); return posix_memalign(p, 512, n + 64) ? 207001 : 0; }
int aclrtMallocAlign32(void **p, size_t n, int pol) { NOISE("aclrtMallocAlign32 %zu", n); return posix_memalign(p, 512, n + 64) ? 207001 : 0; }
int aclrtMallocHost(void **p, size_t n) { return posix_memalign(p, 512, n + 64) ? 207001 : 0; }
int aclrtFree(void *p) { free(p); return 0; }
int aclrtFreeHost(void *p) { free(p); return 0; }
int aclrtMemcpy(void *d, size_t dn, const void *s, size_t n, int k) { NOISE("aclrtMemcpy %zu kind=%d", n, k); memcpy(d, s, n); return 0; }
int aclrtMemcpyAsync(void *d, size_t dn, const void *s, size_t n, int k, void *st) { NOISE("aclrtMemcpyAsync %zu kind=%d", n, k); memcpy(d, s, n); return 0; }
int aclrtMemset(void *d, size_t dn, int v, size_t n) { memset(d, v, n); return 0; }
int aclrtMemsetAsync(void *d, size_t dn, int v, size_t n, void *st) { memset(d, v, n); return 0; }
int aclrtSetDeviceSatMode(int m) { return 0; }
int aclrtSetOpWaitTimeout(uint32_t t) { return 0; }
int aclrtSetOpExecuteTimeOut(uint32_t t) { return 0; }
int aclrtSetStreamFailureMode(void *s, uint64_t m) { return 0; }
int aclrtSetStreamOverflowSwitch(void *s, uint32_t f) { return 0; }
int aclrtGetStreamOverflowSwitch(void *s, uint32_t *f) { *f = 0; return 0; }
int aclrtGetLastError(int l) { return 0; }
int aclrtPeekAtLastError(int l) { return 0; }
int aclrtGetDeviceUtilizationRate(int32_t d, void *u) { return 0; }
struct pkgver { char version[128], major[64], minor[64], release[64], patch[64], reserved[128]; };
int aclsysGetCANNVersion(int name, struct pkgver *v) {
    const char *s = env("CANN_STUB_VERSION", "8.5.0");
    if (!strcmp(s, "none")) return 500000;
    memset(v, 0, sizeof *v);
    snprintf(v->version, sizeof v->version, "%s", s);
    return 0;
}
int aclsysGetVersionStr(char *pkg, char *out) { return 500000; }

/* ---- acl_op_compiler ----------------------------------------------------------------------- */
int aclSetCompileopt(int opt, const char *v) { NOISE("aclSetCompileopt %d=%s", opt, v ? v : "(null)"); return 0; }
size_t aclGetCompileoptSize(int opt) { return 8; }
int aclGetCompileopt(int opt, char *v, size_t n) { snprintf(v, n, "disable"); return 0; }
/* no kernels here: a device op fails loudly instead of returning garbage */
int aclopCompileAndExecute(const char *op) { rec("aclopCompileAndExecute %s", op); return 500000; }
int aclopCompileAndExecuteV2(const char *op) { rec("aclopCompileAndExecuteV2 %s", op); return 500000; }
static int64_t sysopt[64];
int aclrtCtxSetSysParamOpt(int o, int64_t v) { if (o >= 0 && o < 64) sysopt[o] = v; return 0; }
int aclrtSetSysParamOpt(int o, int64_t v) { if (o >= 0 && o < 64) sysopt[o] = v; return 0; }
int aclrtGetSysParamOpt(int o, int64_t *v) { *v = o >= 0 && o < 64 ? sysopt[o] : 0; return 0; }

/* ---- profiling (aclprofInit..Finalize looked up in libascendcl, the rest in libmsprofiler) --- */
struct profcfg { uint32_t n; uint32_t dev[64]; int aic; uint64_t types; };
static char prof_dir[4096];
int aclprofInit(const char *path, size_t len) {
    rec("aclprofInit path=%.*s", (int)len, path);
    prof_dir[0] = 0;
    if (!strcmp(env("CANN_STUB_PROF_DIR", "1"), "1")) {
        char d[4096], t[64]; struct timespec ts; struct tm tm;
        clock_gettime(CLOCK_REALTIME, &ts); localtime_r(&ts.tv_sec, &tm);
        strftime(t, sizeof t, "%Y%m%d%H%M%S", &tm);
        int n = snprintf(d, sizeof d, "%.*s/PROF_000001_%s%03ld_CANNSTUB%08dAA", (int)len, path, t, ts.tv_nsec / 1000000, (int)getpid());
        mkdir(d, 0750);
        snprintf(d + n, sizeof d - n, "/host"); mkdir(d, 0750);
        snprintf(d + n, sizeof d - n, "/device_0"); mkdir(d, 0750);
        snprintf(prof_dir, sizeof prof_dir, "%s", d);
    }
    return fail("aclprofInit");
}
int aclprofFinalize(void) { rec("aclprofFinalize"); return fail("aclprofFinalize"); }
void *aclprofCreateConfig(uint32_t *ids, uint32_t n, int aic, void *ev, uint64_t types) {
    rec("aclprofCreateConfig devices=%u first=%u aic=%d types=0x%llx", n, n ? ids[0] : 0, aic, (unsigned long long)types);
    if (fail("aclprofCreateConfig")) return NULL;
    struct profcfg *c = calloc(1, sizeof *c);
    c->n = n > 64 ? 64 : n; memcpy(c->dev, ids, c->n * 4); c->aic = aic; c->types = types;
    return c;
}
int aclprofDestroyConfig(void *c) { rec("aclprofDestroyConfig"); free(c); return 0; }
int aclprofStart(void *c) {
    rec("aclprofStart types=0x%llx", c ? (unsigned long long)((struct profcfg *)c)->types : 0);
    if (!fail("aclprofStart") && prof_dir[0]) {
        char d[4200];
        snprintf(d, sizeof d, "%s/data", prof_dir); mkdir(d, 0750);
        snprintf(d, sizeof d, "%s/data/ffts_profile.data.0.slice_0", prof_dir);
        FILE *f = fopen(d, "w");
        if (f) { fputs("stub", f); fclose(f); }
    }
    return fail("aclprofStart");
}
int aclprofStop(void *c) { rec("aclprofStop types=0x%llx", c ? (unsigned long long)((struct profcfg *)c)->types : 0); return fail("aclprofStop"); }
int aclprofWarmup(void *c) { rec("aclprofWarmup"); return fail("aclprofWarmup"); }
int aclprofSetConfig(int t, const char *v, size_t n) { rec("aclprofSetConfig type=%d value=%.*s", t, (int)n, v); return 0; }
/* FeatureRecord layout: torch_npu/csrc/profiler/feature_mgr.h */
struct feature { char name[64]; struct { char compat[16], ver[16], comp[16], compver[16], log[128]; } i; };
int aclprofGetSupportedFeatures(size_t *n, void **d) { *n = 0; *d = NULL; return 0; }
int aclprofGetSupportedFeaturesV2(size_t *n, void **d) { *n = 0; *d = NULL; return 0; }
int aclprofRegisterDeviceCallback(void) { rec("aclprofRegisterDeviceCallback"); return 0; }
int aclprofMarkEx(const char *m, size_t n, void *s) { rec("aclprofMarkEx msg=%.*s", (int)n, m); return 0; }
int aclopStartDumpArgs(uint32_t t, const char *p) { rec("aclopStartDumpArgs %s", p); return 0; }
int aclopStopDumpArgs(uint32_t t) { rec("aclopStopDumpArgs"); return 0; }

/* ---- mstx (libms_tools_ext.so) --------------------------------------------------------------- */
static uint64_t range_id;
struct dom { char name[256]; };
static const char *dn(struct dom *d) { return d ? d->name : "default"; }
void mstxMarkA(const char *m, void *s) { rec("mstxMarkA msg=%s stream=%d", m, s != NULL); }
uint64_t mstxRangeStartA(const char *m, void *s) {
    uint64_t id = __sync_add_and_fetch(&range_id, 1);
    rec("mstxRangeStartA id=%llu msg=%s stream=%d", (unsigned long long)id, m, s != NULL); return id;
}
void mstxRangeEnd(uint64_t id) { rec("mstxRangeEnd id=%llu", (unsigned long long)id); }
void *mstxDomainCreateA(const char *n) {
    struct dom *d = calloc(1, sizeof *d); snprintf(d->name, sizeof d->name, "%s", n);
    rec("mstxDomainCreateA domain=%s", n); return d;
}
void mstxDomainDestroy(void *d) { rec("mstxDomainDestroy domain=%s", dn(d)); }
void mstxDomainMarkA(void *d, const char *m, void *s) { rec("mstxDomainMarkA domain=%s msg=%s stream=%d", dn(d), m, s != NULL); }
uint64_t mstxDomainRangeStartA(void *d, const char *m, void *s) {
    uint64_t id = __sync_add_and_fetch(&range_id, 1);
    rec("mstxDomainRangeStartA id=%llu domain=%s msg=%s stream=%d", (unsigned long long)id, dn(d), m, s != NULL); return id;
}
void mstxDomainRangeEnd(void *d, uint64_t id) { rec("mstxDomainRangeEnd id=%llu domain=%s", (unsigned long long)id, dn(d)); }
void *mstxMemHeapRegister(void *d, const void *x) { return NULL; }
void mstxMemHeapUnregister(void *d, void *x) {}
void mstxMemRegionsRegister(void *d, const void *x) {}
void mstxMemRegionsUnregister(void *d, const void *x) {}

/* ---- mspti, hal ------------------------------------------------------------------------------ */
bool msptiActivityIsEnabled(int k) { return *env("CANN_STUB_MSPTI_MARKER", "0") == '1'; }
int halGetAPIVersion(int32_t *v) { *v = 0x071905; return 0; }
int halGetDeviceInfo(uint32_t d, int32_t m, int32_t i, int64_t *v) { *v = 0; return 0; } /* freq 0 => syscnt off, CLOCK_MONOTONIC_RAW */
