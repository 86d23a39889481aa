// NVML: one device whose clocks are those of an H100 SXM, at rest and set by nobody. `nvml.h` is in none of the wheels
// that the plugin needs, so that the few declarations are here.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SUCCESS = 0, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6, INSUFFICIENT_SIZE = 7 };
enum { CLOCK_GRAPHICS = 0, CLOCK_SM = 1, CLOCK_MEMORY = 2 };

static char device;

int nvmlInit_v2(void)
{
    return SUCCESS;
}

int nvmlInit(void)
{
    return SUCCESS;
}

int nvmlShutdown(void)
{
    return SUCCESS;
}

int nvmlDeviceGetCount_v2(unsigned *count)
{
    *count = 1;
    return SUCCESS;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **handle)
{
    *handle = &device;
    return index == 0 ? SUCCESS : INVALID_ARGUMENT;
}

int nvmlDeviceGetHandleByPciBusId_v2(const char *id, void **handle)
{
    (void)id;
    *handle = &device;
    return SUCCESS;
}

int nvmlDeviceGetHandleByUUID(const char *id, void **handle)
{
    (void)id;
    *handle = &device;
    return SUCCESS;
}

static int clock_of(int type, unsigned *mhz)
{
    *mhz = type == CLOCK_MEMORY ? 2619 : 1980;
    return type == CLOCK_GRAPHICS || type == CLOCK_SM || type == CLOCK_MEMORY ? SUCCESS : INVALID_ARGUMENT;
}

int nvmlDeviceGetMaxClockInfo(void *handle, int type, unsigned *mhz)
{
    (void)handle;
    return clock_of(type, mhz);
}

int nvmlDeviceGetClockInfo(void *handle, int type, unsigned *mhz)
{
    (void)handle;
    return clock_of(type, mhz);
}

int nvmlDeviceGetApplicationsClock(void *handle, int type, unsigned *mhz)
{
    (void)handle;
    return clock_of(type, mhz);
}

int nvmlDeviceGetDefaultApplicationsClock(void *handle, int type, unsigned *mhz)
{
    (void)handle;
    return clock_of(type, mhz);
}

int nvmlDeviceGetCurrentClocksEventReasons(void *handle, unsigned long long *reasons)
{
    (void)handle;
    *reasons = 0;
    return SUCCESS;
}

struct process {
    unsigned pid;
    unsigned long long memory;
    unsigned gpu_instance, compute_instance;
};

struct process_use {
    unsigned pid;
    unsigned long long time_us;
    unsigned multiprocessors, memory, encoder, decoder;
};

// What the first process of the machine uses of the GPU, in per cent: it stands for a program of somebody else's.
static unsigned neighbour(void)
{
    const char *percent = getenv("SIMULATED_GPU_NEIGHBOUR");
    return percent ? (unsigned)atoi(percent) : 0;
}

int nvmlDeviceGetComputeRunningProcesses_v3(void *handle, unsigned *count, struct process *processes)
{
    (void)handle;
    unsigned listed = neighbour() ? 2 : 1;
    if (*count < listed)
        return INSUFFICIENT_SIZE;
    processes[0] = (struct process){.pid = getpid()};
    if (listed == 2)
        processes[1] = (struct process){.pid = 1};
    *count = listed;
    return SUCCESS;
}

int nvmlDeviceGetProcessUtilization(void *handle, struct process_use *uses, unsigned *count, unsigned long long since)
{
    (void)handle;
    // one report, which is old after it was read
    if (since || !neighbour())
        return NOT_FOUND;
    uses[0] = (struct process_use){.pid = 1, .time_us = 1, .multiprocessors = neighbour()};
    *count = 1;
    return SUCCESS;
}

int nvmlDeviceGetCurrPcieLinkGeneration(void *handle, unsigned *generation)
{
    (void)handle;
    *generation = 5;
    return SUCCESS;
}

int nvmlDeviceGetCurrPcieLinkWidth(void *handle, unsigned *lanes)
{
    (void)handle;
    *lanes = 16;
    return SUCCESS;
}

int nvmlDeviceGetMigMode(void *handle, unsigned *mode, unsigned *pending)
{
    (void)handle;
    *mode = *pending = 0;
    return SUCCESS;
}

int nvmlSystemGetDriverVersion(char *version, unsigned length)
{
    snprintf(version, length, "580.0.0");
    return SUCCESS;
}

const char *nvmlErrorString(int error)
{
    return error == SUCCESS ? "Success" : error == NOT_SUPPORTED ? "Not Supported" : "Invalid Argument";
}
