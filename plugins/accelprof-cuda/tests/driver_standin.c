/* A stand-in for libcuda.so.1: two devices, of which those in the bits of `active` are in use; writes down who waited for what.
   `initialized`, `active`, `capturing` (a blocking stream), `captured_stream` and `code` are set by the test. */
#include <stdio.h>
#include <string.h>

int initialized = 1, active = 0, capturing = 0, code = 0;
void *captured_stream = 0, *current = 0;
char calls[4096];
static void *stack[8];
static int depth = 0;

static void say(const char *what, long number) {
    char text[64];
    snprintf(text, sizeof text, "%s %ld\n", what, number);
    strncat(calls, text, sizeof calls - strlen(calls) - 1);
}
static void *context_of(int device) { return (void *)(long)(0x1000 + device); }

int cuCtxGetCurrent(void **found) { if (!initialized) return 3; *found = current; return 0; }
int cuDeviceGetCount(int *count) { if (!initialized) return 3; *count = 2; return 0; }
int cuDeviceGet(int *device, int number) { *device = number; return 0; }
int cuDevicePrimaryCtxGetState(int device, unsigned *flags, int *is_active) {
    *flags = 0; *is_active = (active >> device) & 1; return 0;
}
int cuDevicePrimaryCtxRetain(void **context, int device) {
    if (!((active >> device) & 1)) say("made", device);
    *context = context_of(device); say("retain", device); return 0;
}
int cuDevicePrimaryCtxRelease_v2(int device) { say("release", device); return 0; }
int cuCtxPushCurrent_v2(void *context) { stack[depth++] = current; current = context; return 0; }
int cuCtxPopCurrent_v2(void **context) { *context = current; current = stack[--depth]; return 0; }
int cuCtxSynchronize(void) { say("wait", (long)current - 0x1000); return code; }
int cuStreamIsCapturing(void *stream, int *status) {
    *status = 0;
    if (stream == (void *)1 && capturing) return 906;
    if (captured_stream && stream == captured_stream) *status = 1;
    return 0;
}
static int mode = 0;
int cuThreadExchangeStreamCaptureMode(int *wanted) { int was = mode; mode = *wanted; *wanted = was; say("mode", mode); return 0; }
