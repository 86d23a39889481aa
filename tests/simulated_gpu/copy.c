// Copies and fills, the only operations that change memory.
#include "simulated.h"

#include <string.h>

size_t sim_bytes(const struct sim_operation *operation)
{
    if (operation->type == CU_GRAPH_NODE_TYPE_MEMCPY)
        return operation->copy.WidthInBytes * operation->copy.Height * operation->copy.Depth;
    return operation->fill.width * operation->fill.elementSize * operation->fill.height;
}

static char *row(CUmemorytype type, const void *host, CUdeviceptr device, size_t offset)
{
    return (type == CU_MEMORYTYPE_HOST ? (char *)host : (char *)device) + offset;
}

static void copy(const CUDA_MEMCPY3D *copy)
{
    for (size_t z = 0; z < copy->Depth; z++)
        for (size_t y = 0; y < copy->Height; y++) {
            size_t to = ((copy->dstZ + z) * copy->dstHeight + copy->dstY + y) * copy->dstPitch + copy->dstXInBytes;
            size_t from = ((copy->srcZ + z) * copy->srcHeight + copy->srcY + y) * copy->srcPitch + copy->srcXInBytes;
            memmove(row(copy->dstMemoryType, copy->dstHost, copy->dstDevice, to),
                    row(copy->srcMemoryType, copy->srcHost, copy->srcDevice, from), copy->WidthInBytes);
        }
}

static void fill(const CUDA_MEMSET_NODE_PARAMS *fill)
{
    for (size_t y = 0; y < fill->height; y++) {
        char *start = (char *)fill->dst + y * fill->pitch;
        if (fill->elementSize == 1 || fill->value == 0)
            memset(start, (int)fill->value, fill->width * fill->elementSize);
        else
            for (size_t x = 0; x < fill->width; x++)
                memcpy(start + x * fill->elementSize, &fill->value, fill->elementSize);
    }
}

void sim_apply(const struct sim_operation *operation)
{
    if (operation->type == CU_GRAPH_NODE_TYPE_MEMCPY)
        copy(&operation->copy);
    else if (operation->type == CU_GRAPH_NODE_TYPE_MEMSET)
        fill(&operation->fill);
}

// ---- copies ---------------------------------------------------------------------------------------------------------

// A pointer is the host's if the driver does not know it.
static CUmemorytype type_of(CUdeviceptr address)
{
    CUmemorytype type;
    bool known = cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address) == CUDA_SUCCESS;
    return known ? type : CU_MEMORYTYPE_HOST;
}

static CUresult submit_copy(CUstream stream, CUmemorytype to_type, CUdeviceptr to, CUmemorytype from_type,
                            CUdeviceptr from, size_t bytes)
{
    struct sim_operation operation = {
        .type = CU_GRAPH_NODE_TYPE_MEMCPY,
        .copy = {.dstMemoryType = to_type, .srcMemoryType = from_type, .WidthInBytes = bytes, .Height = 1, .Depth = 1},
    };
    if (to_type == CU_MEMORYTYPE_HOST)
        operation.copy.dstHost = (void *)to;
    else
        operation.copy.dstDevice = to;
    if (from_type == CU_MEMORYTYPE_HOST)
        operation.copy.srcHost = (void *)from;
    else
        operation.copy.srcDevice = from;
    return sim_submit(stream, &operation);
}

// Copies without a stream end before they return.
static CUresult settle(CUresult result)
{
    sim_wait_until(sim_end_of(sim_stream(NULL)));
    return result;
}

#define HOST CU_MEMORYTYPE_HOST
#define DEVICE CU_MEMORYTYPE_DEVICE

CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void *from, size_t bytes, CUstream stream)
{
    struct sim_call call = SIM_CALL(cuMemcpyHtoDAsync_v2, NULL, to, from, bytes, stream);
    sim_enter(&call);
    return sim_leave(&call, submit_copy(stream, DEVICE, to, HOST, (CUdeviceptr)from, bytes));
}

CUresult cuMemcpyDtoHAsync_v2(void *to, CUdeviceptr from, size_t bytes, CUstream stream)
{
    struct sim_call call = SIM_CALL(cuMemcpyDtoHAsync_v2, NULL, to, from, bytes, stream);
    sim_enter(&call);
    return sim_leave(&call, submit_copy(stream, HOST, (CUdeviceptr)to, DEVICE, from, bytes));
}

CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream)
{
    struct sim_call call = SIM_CALL(cuMemcpyDtoDAsync_v2, NULL, to, from, bytes, stream);
    sim_enter(&call);
    return sim_leave(&call, submit_copy(stream, DEVICE, to, DEVICE, from, bytes));
}

CUresult cuMemcpyAsync(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream)
{
    struct sim_call call = SIM_CALL(cuMemcpyAsync, NULL, to, from, bytes, stream);
    sim_enter(&call);
    return sim_leave(&call, submit_copy(stream, type_of(to), to, type_of(from), from, bytes));
}

CUresult cuMemcpyHtoD_v2(CUdeviceptr to, const void *from, size_t bytes)
{
    struct sim_call call = SIM_CALL(cuMemcpyHtoD_v2, NULL, to, from, bytes);
    sim_enter(&call);
    return sim_leave(&call, settle(submit_copy(NULL, DEVICE, to, HOST, (CUdeviceptr)from, bytes)));
}

CUresult cuMemcpyDtoH_v2(void *to, CUdeviceptr from, size_t bytes)
{
    struct sim_call call = SIM_CALL(cuMemcpyDtoH_v2, NULL, to, from, bytes);
    sim_enter(&call);
    return sim_leave(&call, settle(submit_copy(NULL, HOST, (CUdeviceptr)to, DEVICE, from, bytes)));
}

CUresult cuMemcpyDtoD_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes)
{
    struct sim_call call = SIM_CALL(cuMemcpyDtoD_v2, NULL, to, from, bytes);
    sim_enter(&call);
    return sim_leave(&call, settle(submit_copy(NULL, DEVICE, to, DEVICE, from, bytes)));
}

CUresult cuMemcpy(CUdeviceptr to, CUdeviceptr from, size_t bytes)
{
    struct sim_call call = SIM_CALL(cuMemcpy, NULL, to, from, bytes);
    sim_enter(&call);
    return sim_leave(&call, settle(submit_copy(NULL, type_of(to), to, type_of(from), from, bytes)));
}

// ---- fills ----------------------------------------------------------------------------------------------------------

static CUresult submit_fill(CUstream stream, CUdeviceptr to, unsigned value, unsigned element_bytes, size_t count)
{
    struct sim_operation operation = {
        .type = CU_GRAPH_NODE_TYPE_MEMSET,
        .fill = {.dst = to, .value = value, .elementSize = element_bytes, .width = count, .height = 1},
    };
    return sim_submit(stream, &operation);
}

CUresult cuMemsetD8Async(CUdeviceptr to, unsigned char value, size_t count, CUstream stream)
{
    struct sim_call call = SIM_CALL(cuMemsetD8Async, NULL, to, value, count, stream);
    sim_enter(&call);
    return sim_leave(&call, submit_fill(stream, to, value, 1, count));
}

CUresult cuMemsetD16Async(CUdeviceptr to, unsigned short value, size_t count, CUstream stream)
{
    struct sim_call call = SIM_CALL(cuMemsetD16Async, NULL, to, value, count, stream);
    sim_enter(&call);
    return sim_leave(&call, submit_fill(stream, to, value, 2, count));
}

CUresult cuMemsetD32Async(CUdeviceptr to, unsigned value, size_t count, CUstream stream)
{
    struct sim_call call = SIM_CALL(cuMemsetD32Async, NULL, to, value, count, stream);
    sim_enter(&call);
    return sim_leave(&call, submit_fill(stream, to, value, 4, count));
}

CUresult cuMemsetD8_v2(CUdeviceptr to, unsigned char value, size_t count)
{
    struct sim_call call = SIM_CALL(cuMemsetD8_v2, NULL, to, value, count);
    sim_enter(&call);
    return sim_leave(&call, submit_fill(NULL, to, value, 1, count));
}

CUresult cuMemsetD32_v2(CUdeviceptr to, unsigned value, size_t count)
{
    struct sim_call call = SIM_CALL(cuMemsetD32_v2, NULL, to, value, count);
    sim_enter(&call);
    return sim_leave(&call, submit_fill(NULL, to, value, 4, count));
}
