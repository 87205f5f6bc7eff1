/* A libnvidia-ml.so.1 that says what its environment says: enough of NVML for one pass over the cards.
   GPUS: how many. LOST: index of a card that fell off the bus. UNREADABLE: index whose handle fails.
   XID: "index:number", told once. MIG: index in MIG mode. NOCOUNT: the driver does not count. NODRIVER: init fails. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef int ret;
enum { OK = 0, NOT_SUPPORTED = 3, NOT_FOUND = 6, DRIVER_NOT_LOADED = 9, TIMEOUT = 10, GPU_IS_LOST = 15, UNKNOWN = 999 };

static int number(const char *name, int otherwise) { const char *v = getenv(name); return v && *v ? atoi(v) : otherwise; }
static long of(void *handle) { return (long)handle - 1; }

ret nvmlInit_v2(void) { return number("NODRIVER", 0) ? DRIVER_NOT_LOADED : OK; }
ret nvmlInitWithFlags(unsigned flags) { (void)flags; return nvmlInit_v2(); }
ret nvmlShutdown(void) { return OK; }
const char *nvmlErrorString(ret r) { (void)r; return "stub"; }
ret nvmlDeviceGetCount_v2(unsigned *count) { *count = number("GPUS", 0); return number("NOCOUNT", 0) ? UNKNOWN : OK; }
ret nvmlDeviceGetHandleByIndex_v2(unsigned index, void **handle) {
  if ((int)index == number("LOST", -1)) return GPU_IS_LOST;
  if ((int)index == number("UNREADABLE", -1)) return UNKNOWN;
  *handle = (void *)(long)(index + 1); return OK;
}
ret nvmlDeviceGetUUID(void *h, char *out, unsigned n) { snprintf(out, n, "GPU-%08ld", of(h)); return OK; }
ret nvmlDeviceGetName(void *h, char *out, unsigned n) { snprintf(out, n, of(h) < 2 ? "NVIDIA A10G" : "Tesla T4"); return OK; }
ret nvmlDeviceGetMemoryInfo(void *h, unsigned long long *m) { m[0] = (of(h) < 2 ? 23028ULL : 15360ULL) << 20; m[1] = m[0]; m[2] = 0; return OK; }
ret nvmlDeviceGetCudaComputeCapability(void *h, int *major, int *minor) { *major = of(h) < 2 ? 8 : 7; *minor = of(h) < 2 ? 6 : 5; return OK; }
ret nvmlDeviceGetNumGpuCores(void *h, unsigned *cores) { *cores = of(h) < 2 ? 10240 : 2560; return OK; }
ret nvmlDeviceGetArchitecture(void *h, unsigned *a) { *a = of(h) < 2 ? 7 : 6; return OK; }
ret nvmlDeviceGetMinorNumber(void *h, unsigned *m) { *m = 7 - of(h); return OK; }
ret nvmlDeviceGetPciInfo_v3(void *h, void *info) { snprintf((char *)info + 36, 32, "00000000:%02lX:00.0", of(h) + 1); return OK; }
ret nvmlDeviceGetMigMode(void *h, unsigned *now, unsigned *next) {
  if (of(h) >= 2) return NOT_SUPPORTED;
  *now = *next = of(h) == number("MIG", -1); return OK;
}
ret nvmlSystemGetDriverVersion(char *out, unsigned n) { snprintf(out, n, "560.35.03"); return OK; }
ret nvmlSystemGetCudaDriverVersion(int *v) { *v = 12060; return OK; }
ret nvmlEventSetCreate(void **set) { *set = (void *)1; return OK; }
ret nvmlDeviceRegisterEvents(void *h, unsigned long long types, void *set) { (void)h; (void)types; (void)set; return OK; }
struct event { void *device; unsigned long long type, data; unsigned gi, ci; };
ret nvmlEventSetWait_v2(void *set, struct event *e, unsigned ms) {
  static int told; const char *v = getenv("XID"); (void)set; (void)ms;
  if (told || !v || !*v) return TIMEOUT;
  told = 1; e->device = (void *)(long)(atoi(v) + 1); e->type = 8; e->data = atoi(strchr(v, ':') + 1); return OK;
}
