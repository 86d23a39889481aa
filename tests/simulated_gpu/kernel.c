// Kernels: what the device can run, how long it is said to take, and their launch. They compute nothing.
#include "simulated.h"

// The made-up speeds of an H100: 25 GB/s to and from the host, 1500 GB/s within the device.
enum { HOST_BYTES_PER_NS = 25, DEVICE_BYTES_PER_NS = 1500, COPY_NS = 1000 };
// A kernel takes KERNEL_NS, and for every wave of blocks WAVE_NS and up to as much again, which depends on its name.
enum { KERNEL_NS = 2000, WAVE_NS = 500, LONGEST_KERNEL_NS = 1000000 };

// FNV-1a
static uint32_t hash(const char *text)
{
    uint32_t value = 2166136261;
    for (; *text; text++)
        value = (value ^ (uint8_t)*text) * 16777619;
    return value;
}

static uint64_t kernel_ns(const CUDA_KERNEL_NODE_PARAMS *kernel)
{
    uint64_t blocks = (uint64_t)kernel->gridDimX * kernel->gridDimY * kernel->gridDimZ;
    uint64_t threads = (uint64_t)kernel->blockDimX * kernel->blockDimY * kernel->blockDimZ;
    uint64_t at_once = SIM_MULTIPROCESSORS * (SIM_THREADS_PER_MULTIPROCESSOR / threads);
    uint64_t waves = (blocks + at_once - 1) / at_once;
    uint64_t time = KERNEL_NS + waves * (WAVE_NS + hash(kernel->func->name) % WAVE_NS);
    return time < LONGEST_KERNEL_NS ? time : LONGEST_KERNEL_NS;
}

uint64_t sim_duration_ns(const struct sim_operation *operation)
{
    switch (operation->type) {
    case CU_GRAPH_NODE_TYPE_KERNEL:
        return kernel_ns(&operation->kernel);
    case CU_GRAPH_NODE_TYPE_MEMCPY: {
        bool on_device =
            operation->copy.dstMemoryType != CU_MEMORYTYPE_HOST && operation->copy.srcMemoryType != CU_MEMORYTYPE_HOST;
        return COPY_NS + sim_bytes(operation) / (on_device ? DEVICE_BYTES_PER_NS : HOST_BYTES_PER_NS);
    }
    case CU_GRAPH_NODE_TYPE_MEMSET:
        return COPY_NS + sim_bytes(operation) / DEVICE_BYTES_PER_NS;
    default:
        return 0;
    }
}

CUresult sim_check_kernel(const CUDA_KERNEL_NODE_PARAMS *kernel)
{
    if (!kernel->func)
        return CUDA_ERROR_INVALID_HANDLE;
    uint64_t blocks = (uint64_t)kernel->gridDimX * kernel->gridDimY * kernel->gridDimZ;
    uint64_t threads = (uint64_t)kernel->blockDimX * kernel->blockDimY * kernel->blockDimZ;
    if (blocks == 0 || threads == 0 || threads > SIM_THREADS_PER_BLOCK)
        return CUDA_ERROR_INVALID_VALUE;
    if (kernel->sharedMemBytes > (unsigned)kernel->func->max_dynamic_shared_bytes)
        return CUDA_ERROR_INVALID_VALUE;
    return CUDA_SUCCESS;
}

static CUresult launch(const CUlaunchConfig *config, CUfunction function)
{
    struct sim_operation operation = {
        .type = CU_GRAPH_NODE_TYPE_KERNEL,
        .kernel = {.func = function,
                   .gridDimX = config->gridDimX,
                   .gridDimY = config->gridDimY,
                   .gridDimZ = config->gridDimZ,
                   .blockDimX = config->blockDimX,
                   .blockDimY = config->blockDimY,
                   .blockDimZ = config->blockDimZ,
                   .sharedMemBytes = config->sharedMemBytes},
    };
    CUresult result = sim_check_kernel(&operation.kernel);
    return result == CUDA_SUCCESS ? sim_submit(config->hStream, &operation) : result;
}

CUresult cuLaunchKernelEx(const CUlaunchConfig *config, CUfunction function, void **params, void **extra)
{
    const char *name = function ? function->name : NULL;
    struct sim_call call = SIM_CALL(cuLaunchKernelEx, name, config, function, params, extra);
    sim_enter(&call);
    return sim_leave(&call, launch(config, function));
}

CUresult cuLaunchKernel(CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
                        unsigned block_y, unsigned block_z, unsigned shared_bytes, CUstream stream, void **params,
                        void **extra)
{
    struct sim_call call = SIM_CALL(cuLaunchKernel, function ? function->name : NULL, function, grid_x, grid_y, grid_z,
                                    block_x, block_y, block_z, shared_bytes, stream, params, extra);
    CUlaunchConfig config = {grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes, stream, NULL, 0};
    sim_enter(&call);
    return sim_leave(&call, launch(&config, function));
}

CUresult cuLaunchCooperativeKernel(CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                                   unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared_bytes,
                                   CUstream stream, void **params)
{
    struct sim_call call = SIM_CALL(cuLaunchCooperativeKernel, function ? function->name : NULL, function, grid_x,
                                    grid_y, grid_z, block_x, block_y, block_z, shared_bytes, stream, params);
    CUlaunchConfig config = {grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes, stream, NULL, 0};
    sim_enter(&call);
    return sim_leave(&call, launch(&config, function));
}

// ---- occupancy ------------------------------------------------------------------------------------------------------

static int blocks_at_once(CUfunction function, int block_size, size_t dynamic_shared_bytes)
{
    if (block_size <= 0 || block_size > SIM_THREADS_PER_BLOCK)
        return 0;
    int by_threads = SIM_THREADS_PER_MULTIPROCESSOR / block_size;
    size_t shared = (size_t)function->static_shared_bytes + dynamic_shared_bytes + 1024;
    int by_shared = (int)(SIM_SHARED_BYTES_PER_MULTIPROCESSOR / shared);
    int by_registers = function->registers ? 65536 / (function->registers * block_size) : by_threads;
    int least = by_threads < by_shared ? by_threads : by_shared;
    least = least < by_registers ? least : by_registers;
    return least < 32 ? least : 32;
}

CUresult cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *blocks, CUfunction function, int block_size,
                                                              size_t dynamic_shared_bytes, unsigned flags)
{
    (void)flags;
    *blocks = blocks_at_once(function, block_size, dynamic_shared_bytes);
    return CUDA_SUCCESS;
}

CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, CUfunction function, int block_size,
                                                     size_t dynamic_shared_bytes)
{
    *blocks = blocks_at_once(function, block_size, dynamic_shared_bytes);
    return CUDA_SUCCESS;
}

CUresult cuOccupancyMaxPotentialBlockSize(int *grid_size, int *block_size, CUfunction function,
                                          CUoccupancyB2DSize shared_bytes_of, size_t dynamic_shared_bytes, int limit)
{
    int size = limit > 0 && limit < SIM_THREADS_PER_BLOCK ? limit : SIM_THREADS_PER_BLOCK;
    size_t shared = shared_bytes_of ? shared_bytes_of(size) : dynamic_shared_bytes;
    *block_size = size;
    *grid_size = SIM_MULTIPROCESSORS * blocks_at_once(function, size, shared);
    return CUDA_SUCCESS;
}
