// The part of the CUDA runtime that XLA's own kernels need: they register themselves when the plugin is loaded.
#include "simulated.h"

#include <driver_types.h>
#include <pthread.h>
#include <stdlib.h>

struct symbol {
    const void *host;
    CUfunction function;
    struct symbol *next;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct symbol *symbols;

// Any address does for the handle of a fat binary, whose code is not read.
void **__cudaRegisterFatBinary(void *binary)
{
    static void *handle;
    (void)binary;
    return &handle;
}

void __cudaRegisterFatBinaryEnd(void **handle)
{
    (void)handle;
}

void __cudaUnregisterFatBinary(void **handle)
{
    (void)handle;
}

void __cudaRegisterFunction(void **handle, const char *host, char *device, const char *name, int thread_limit,
                            void *thread, void *block, void *block_size, void *grid_size, int *warp_size)
{
    (void)handle;
    (void)device;
    (void)thread_limit;
    (void)thread;
    (void)block;
    (void)block_size;
    (void)grid_size;
    (void)warp_size;
    struct symbol *symbol = malloc(sizeof *symbol);
    pthread_mutex_lock(&lock);
    *symbol = (struct symbol){host, sim_named_function(name), symbols};
    symbols = symbol;
    pthread_mutex_unlock(&lock);
}

void __cudaRegisterVar(void **handle, char *host, char *address, const char *name, int external, size_t bytes,
                       int constant, int global)
{
    (void)handle;
    (void)host;
    (void)address;
    (void)name;
    (void)external;
    (void)bytes;
    (void)constant;
    (void)global;
}

char __cudaInitModule(void **handle)
{
    (void)handle;
    return 1;
}

cudaError_t cudaGetFuncBySymbol(CUfunction *function, const void *host)
{
    cudaError_t result = cudaErrorInvalidDeviceFunction;
    pthread_mutex_lock(&lock);
    for (struct symbol *symbol = symbols; symbol; symbol = symbol->next)
        if (symbol->host == host) {
            *function = symbol->function;
            result = cudaSuccess;
        }
    pthread_mutex_unlock(&lock);
    return result;
}

cudaError_t cudaGetKernel(CUkernel *kernel, const void *host)
{
    return cudaGetFuncBySymbol((CUfunction *)kernel, host);
}

cudaError_t cudaRuntimeGetVersion(int *version)
{
    *version = CUDART_VERSION;
    return cudaSuccess;
}

cudaError_t cudaDriverGetVersion(int *version)
{
    return (cudaError_t)cuDriverGetVersion(version);
}

cudaError_t cudaGetDevice(int *device)
{
    *device = 0;
    return cudaSuccess;
}

cudaError_t cudaSetDevice(int device)
{
    return device == 0 ? cudaSuccess : cudaErrorInvalidDevice;
}

cudaError_t cudaGetDeviceCount(int *count)
{
    return (cudaError_t)cuDeviceGetCount(count);
}

// The runtime numbers attributes as the driver does.
cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr attribute, int device)
{
    return (cudaError_t)cuDeviceGetAttribute(value, (CUdevice_attribute)attribute, device);
}

cudaError_t cudaGetLastError(void)
{
    return cudaSuccess;
}

cudaError_t cudaPeekAtLastError(void)
{
    return cudaSuccess;
}

// The runtime's errors have the driver's numbers.
const char *cudaGetErrorName(cudaError_t error)
{
    const char *name;
    return cuGetErrorName((CUresult)error, &name) == CUDA_SUCCESS ? name : "an error of the simulated runtime";
}

const char *cudaGetErrorString(cudaError_t error)
{
    const char *text;
    return cuGetErrorString((CUresult)error, &text) == CUDA_SUCCESS ? text : "an error of the simulated runtime";
}
