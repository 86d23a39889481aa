// NVML: one device whose clocks are those of an H100 SXM, at rest and set by nobody. `nvml.h` is in none of the wheels
// that the plugin needs, so that the few declarations are here.
#include <stdio.h>
#include <string.h>

enum { SUCCESS = 0, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3 };
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
