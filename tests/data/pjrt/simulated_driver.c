/* SIMULATED: no GPU is here. What of NVIDIA's `libcuda.so.1` and `libnvidia-ml.so.1` the worker asks for clocks, for two made-up
 * GPUs: CUDA's first one is the second on the bus. The file that SIMULATED_CLOCKS names says, each time it is asked, in this order:
 * the multiprocessors' clock that somebody set (0: none), the one at this moment, why it is no higher (bits), and what fails:
 * 0 nothing, 1 `nvmlInit_v2`, 2 `cuDeviceGetPCIBusId`.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SM = 1, MEMORY = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6, DRIVER_NOT_LOADED = 9 };

static const char *const bus_ids[] = {"0000:01:00.0", "0000:17:00.0"};
static int gpus[2];

struct told {
  unsigned set, now, fails;
  unsigned long long reasons;
};

static struct told told(void) {
  struct told told = {0};
  const char *name = getenv("SIMULATED_CLOCKS");
  FILE *file = name ? fopen(name, "r") : NULL;
  if (file) {
    if (fscanf(file, "%u %u %llx %u", &told.set, &told.now, &told.reasons, &told.fails) != 4) abort();
    fclose(file);
  }
  return told;
}

int cuDeviceGet(int *device, int ordinal) {
  *device = 40 + ordinal;
  return 0;
}

int cuDeviceGetPCIBusId(char *text, int size, int device) {
  if (told().fails == 2) return 1;
  snprintf(text, (size_t)size, "%s", bus_ids[device == 40 ? 1 : 0]);
  return 0;
}

int nvmlInit_v2(void) { return told().fails == 1 ? DRIVER_NOT_LOADED : 0; }

int nvmlDeviceGetCount_v2(unsigned *count) {
  *count = 2;
  return 0;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device) {
  *device = &gpus[index];
  return 0;
}

int nvmlDeviceGetHandleByPciBusId_v2(const char *bus_id, void **device) {
  for (int index = 0; index < 2; index++) {
    *device = &gpus[index];
    if (strcmp(bus_id, bus_ids[index]) == 0) return 0;
  }
  return NOT_FOUND;
}

int nvmlDeviceGetMaxClockInfo(void *device, unsigned kind, unsigned *mhz) {
  *mhz = device != &gpus[1] ? 1 : kind == SM ? 1980 : 2619;
  return 0;
}

int nvmlDeviceGetDefaultApplicationsClock(void *device, unsigned kind, unsigned *mhz) {
  (void)device;
  *mhz = kind == SM ? 1095 : 2619;
  return 0;
}

int nvmlDeviceGetApplicationsClock(void *device, unsigned kind, unsigned *mhz) {
  unsigned set = told().set;
  if (kind != SM) return NOT_SUPPORTED;
  if (set == 0) return nvmlDeviceGetDefaultApplicationsClock(device, kind, mhz);
  *mhz = set;
  return 0;
}

int nvmlDeviceGetClockInfo(void *device, unsigned kind, unsigned *mhz) {
  (void)device, (void)kind;
  *mhz = told().now;
  return 0;
}

int nvmlDeviceGetCurrentClocksThrottleReasons(void *device, unsigned long long *reasons) {
  (void)device;
  *reasons = told().reasons;
  return 0;
}
