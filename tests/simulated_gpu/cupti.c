// CUPTI: callbacks of the driver's calls and of graphs, and records of what the simulated device ran.
//
// The driver tells what happens through `sim_tracer`; nothing is kept before a program asks for it.
#include "simulated.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { DOMAINS = CUPTI_CB_DOMAIN_SIZE, CALLBACKS = 1024 };

static CUpti_CallbackFunc callback;
static void *callback_data;
static bool wanted[DOMAINS][CALLBACKS];

static bool wants(CUpti_CallbackDomain domain, CUpti_CallbackId id)
{
    return callback && id < CALLBACKS && wanted[domain][id];
}

static bool is_refused(void)
{
    return sim_setting("REFUSE_CUPTI") != NULL;
}

// ---- callbacks ------------------------------------------------------------------------------------------------------

static void on_call(struct sim_call *call, CUpti_ApiCallbackSite site)
{
    if (!wants(CUPTI_CB_DOMAIN_DRIVER_API, call->id))
        return;
    CUpti_CallbackData data = {
        .callbackSite = site,
        .functionName = call->name,
        .functionParams = call->params,
        .functionReturnValue = &call->result,
        .symbolName = call->symbol,
        .context = &sim_context,
        .contextUid = 1,
        .correlationData = &call->data,
        .correlationId = call->correlation,
    };
    callback(callback_data, CUPTI_CB_DOMAIN_DRIVER_API, call->id, &data);
}

static void on_graph(CUpti_CallbackIdResource event, CUpti_GraphData *graph)
{
    if (!wants(CUPTI_CB_DOMAIN_RESOURCE, event))
        return;
    CUpti_ResourceData data = {.context = &sim_context, .resourceDescriptor = graph};
    callback(callback_data, CUPTI_CB_DOMAIN_RESOURCE, event, (const CUpti_CallbackData *)&data);
}

// ---- records --------------------------------------------------------------------------------------------------------

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static CUpti_BuffersCallbackRequestFunc request;
static CUpti_BuffersCallbackCompleteFunc complete;
static bool enabled[CUPTI_ACTIVITY_KIND_COUNT];
// the buffer that is being filled
static uint8_t *buffer;
static size_t buffer_bytes, used_bytes;
static size_t dropped;

static void hand_over_buffer(void)
{
    if (buffer)
        complete(NULL, 0, buffer, buffer_bytes, used_bytes);
    buffer = NULL;
    used_bytes = 0;
}

static void append(const void *record, size_t bytes)
{
    if (buffer && used_bytes + bytes > buffer_bytes)
        hand_over_buffer();
    if (!buffer && request) {
        size_t most_records = 0;
        request(&buffer, &buffer_bytes, &most_records);
    }
    if (!buffer || bytes > buffer_bytes) {
        __atomic_add_fetch(&dropped, 1, __ATOMIC_RELAXED);
        return;
    }
    memcpy(buffer + used_bytes, record, bytes);
    used_bytes += bytes;
}

static void append_kernel(const struct sim_record *record)
{
    const CUDA_KERNEL_NODE_PARAMS *kernel = &record->operation->kernel;
    CUpti_ActivityKernel10 activity = {
        .kind = CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL,
        .registersPerThread = (uint16_t)kernel->func->registers,
        .start = record->start,
        .end = record->end,
        .completed = record->end,
        .contextId = 1,
        .streamId = record->stream_id,
        .gridX = (int32_t)kernel->gridDimX,
        .gridY = (int32_t)kernel->gridDimY,
        .gridZ = (int32_t)kernel->gridDimZ,
        .blockX = (int32_t)kernel->blockDimX,
        .blockY = (int32_t)kernel->blockDimY,
        .blockZ = (int32_t)kernel->blockDimZ,
        .staticSharedMemory = kernel->func->static_shared_bytes,
        .dynamicSharedMemory = (int32_t)kernel->sharedMemBytes,
        .localMemoryPerThread = (uint32_t)kernel->func->local_bytes,
        .correlationId = record->correlation,
        .name = kernel->func->name,
        .graphNodeId = record->node_id,
        .graphId = record->graph_id,
    };
    append(&activity, sizeof activity);
}

static void append_copy(const struct sim_record *record)
{
    const CUDA_MEMCPY3D *copy = &record->operation->copy;
    bool to_host = copy->dstMemoryType == CU_MEMORYTYPE_HOST, from_host = copy->srcMemoryType == CU_MEMORYTYPE_HOST;
    CUpti_ActivityMemcpyKind kind = to_host && from_host ? CUPTI_ACTIVITY_MEMCPY_KIND_HTOH
                                    : to_host            ? CUPTI_ACTIVITY_MEMCPY_KIND_DTOH
                                    : from_host          ? CUPTI_ACTIVITY_MEMCPY_KIND_HTOD
                                                         : CUPTI_ACTIVITY_MEMCPY_KIND_DTOD;
    CUpti_ActivityMemcpy6 activity = {
        .kind = CUPTI_ACTIVITY_KIND_MEMCPY,
        .copyKind = (uint8_t)kind,
        .srcKind = from_host ? CUPTI_ACTIVITY_MEMORY_KIND_PINNED : CUPTI_ACTIVITY_MEMORY_KIND_DEVICE,
        .dstKind = to_host ? CUPTI_ACTIVITY_MEMORY_KIND_PINNED : CUPTI_ACTIVITY_MEMORY_KIND_DEVICE,
        .flags = CUPTI_ACTIVITY_FLAG_MEMCPY_ASYNC,
        .bytes = sim_bytes(record->operation),
        .start = record->start,
        .end = record->end,
        .contextId = 1,
        .streamId = record->stream_id,
        .correlationId = record->correlation,
        .graphNodeId = record->node_id,
        .graphId = record->graph_id,
        .copyCount = 1,
    };
    append(&activity, sizeof activity);
}

static void append_fill(const struct sim_record *record)
{
    CUpti_ActivityMemset4 activity = {
        .kind = CUPTI_ACTIVITY_KIND_MEMSET,
        .value = record->operation->fill.value,
        .bytes = sim_bytes(record->operation),
        .start = record->start,
        .end = record->end,
        .contextId = 1,
        .streamId = record->stream_id,
        .correlationId = record->correlation,
        .flags = CUPTI_ACTIVITY_FLAG_MEMSET_ASYNC,
        .memoryKind = CUPTI_ACTIVITY_MEMORY_KIND_DEVICE,
        .graphNodeId = record->node_id,
        .graphId = record->graph_id,
    };
    append(&activity, sizeof activity);
}

static void append_graph(const struct sim_record *record)
{
    CUpti_ActivityGraphTrace2 activity = {
        .kind = CUPTI_ACTIVITY_KIND_GRAPH_TRACE,
        .correlationId = record->correlation,
        .start = record->start,
        .end = record->end,
        .graphId = record->graph_id,
        .contextId = 1,
        .streamId = record->stream_id,
        .endContextId = 1,
    };
    append(&activity, sizeof activity);
}

static void on_record(const struct sim_record *record)
{
    pthread_mutex_lock(&lock);
    bool whole_graphs = enabled[CUPTI_ACTIVITY_KIND_GRAPH_TRACE];
    // a graph has either one record or one a node
    if (record->type == CU_GRAPH_NODE_TYPE_GRAPH) {
        if (whole_graphs)
            append_graph(record);
    } else if (record->graph_id && whole_graphs) {
        // it is a part of the graph's record
    } else if (record->type == CU_GRAPH_NODE_TYPE_KERNEL) {
        if (enabled[CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL] || enabled[CUPTI_ACTIVITY_KIND_KERNEL])
            append_kernel(record);
    } else if (record->type == CU_GRAPH_NODE_TYPE_MEMCPY) {
        if (enabled[CUPTI_ACTIVITY_KIND_MEMCPY])
            append_copy(record);
    } else if (enabled[CUPTI_ACTIVITY_KIND_MEMSET]) {
        append_fill(record);
    }
    pthread_mutex_unlock(&lock);
}

static const struct sim_tracer tracer = {.call = on_call, .graph = on_graph, .record = on_record};

__attribute__((constructor)) static void attach(void)
{
    sim_tracer = &tracer;
}

__attribute__((destructor)) static void detach(void)
{
    sim_tracer = NULL;
}

// ---- the interface --------------------------------------------------------------------------------------------------

CUptiResult cuptiSubscribe(CUpti_SubscriberHandle *subscriber, CUpti_CallbackFunc function, void *data)
{
    if (is_refused())
        return CUPTI_ERROR_INSUFFICIENT_PRIVILEGES;
    if (callback)
        return CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED;
    // one subscriber at a time, so that any handle does
    *subscriber = (CUpti_SubscriberHandle)&callback;
    callback_data = data;
    callback = function;
    return CUPTI_SUCCESS;
}

CUptiResult cuptiSubscribe_v2(CUpti_SubscriberHandle *subscriber, CUpti_CallbackFunc function, void *data,
                              CUpti_SubscriberParams *params)
{
    (void)params;
    return cuptiSubscribe(subscriber, function, data);
}

CUptiResult cuptiUnsubscribe(CUpti_SubscriberHandle subscriber)
{
    (void)subscriber;
    callback = NULL;
    memset(wanted, 0, sizeof wanted);
    return CUPTI_SUCCESS;
}

CUptiResult cuptiEnableCallback(uint32_t enable, CUpti_SubscriberHandle subscriber, CUpti_CallbackDomain domain,
                                CUpti_CallbackId id)
{
    (void)subscriber;
    if ((unsigned)domain >= DOMAINS || id >= CALLBACKS)
        return CUPTI_ERROR_INVALID_PARAMETER;
    wanted[domain][id] = enable;
    return CUPTI_SUCCESS;
}

CUptiResult cuptiEnableDomain(uint32_t enable, CUpti_SubscriberHandle subscriber, CUpti_CallbackDomain domain)
{
    (void)subscriber;
    if ((unsigned)domain >= DOMAINS)
        return CUPTI_ERROR_INVALID_PARAMETER;
    memset(wanted[domain], enable != 0, sizeof wanted[domain]);
    return CUPTI_SUCCESS;
}

CUptiResult cuptiActivityRegisterCallbacks(CUpti_BuffersCallbackRequestFunc on_request,
                                           CUpti_BuffersCallbackCompleteFunc on_complete)
{
    request = on_request;
    complete = on_complete;
    return CUPTI_SUCCESS;
}

CUptiResult cuptiActivityEnable(CUpti_ActivityKind kind)
{
    if (is_refused())
        return CUPTI_ERROR_INSUFFICIENT_PRIVILEGES;
    if ((unsigned)kind >= CUPTI_ACTIVITY_KIND_COUNT)
        return CUPTI_ERROR_INVALID_KIND;
    enabled[kind] = true;
    return CUPTI_SUCCESS;
}

CUptiResult cuptiActivityDisable(CUpti_ActivityKind kind)
{
    if ((unsigned)kind >= CUPTI_ACTIVITY_KIND_COUNT)
        return CUPTI_ERROR_INVALID_KIND;
    enabled[kind] = false;
    return CUPTI_SUCCESS;
}

CUptiResult cuptiActivityFlushAll(uint32_t flags)
{
    (void)flags;
    // records of what has not ended yet lie in the future, and a profiler drops those
    sim_wait_until(sim_end_of_all_streams());
    pthread_mutex_lock(&lock);
    // as on an H200
    static bool has_recorded;
    if (has_recorded)
        __atomic_add_fetch(&dropped, 1, __ATOMIC_RELAXED);
    has_recorded = true;
    hand_over_buffer();
    pthread_mutex_unlock(&lock);
    return CUPTI_SUCCESS;
}

static size_t bytes_of(const CUpti_Activity *record)
{
    switch (record->kind) {
    case CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL:
        return sizeof(CUpti_ActivityKernel10);
    case CUPTI_ACTIVITY_KIND_MEMCPY:
        return sizeof(CUpti_ActivityMemcpy6);
    case CUPTI_ACTIVITY_KIND_MEMSET:
        return sizeof(CUpti_ActivityMemset4);
    default:
        return sizeof(CUpti_ActivityGraphTrace2);
    }
}

CUptiResult cuptiActivityGetNextRecord(uint8_t *start, size_t valid_bytes, CUpti_Activity **record)
{
    uint8_t *next = *record ? (uint8_t *)*record + bytes_of(*record) : start;
    if (next >= start + valid_bytes)
        return CUPTI_ERROR_MAX_LIMIT_REACHED;
    *record = (CUpti_Activity *)next;
    return CUPTI_SUCCESS;
}

CUptiResult cuptiActivityGetNumDroppedRecords(CUcontext context, uint32_t stream, size_t *count)
{
    (void)context;
    (void)stream;
    // without the lock, because a profiler asks while it is handed a buffer
    *count = __atomic_exchange_n(&dropped, 0, __ATOMIC_RELAXED);
    return CUPTI_SUCCESS;
}

// Settings that change nothing here.
CUptiResult cuptiActivitySetAttribute(CUpti_ActivityAttribute attribute, size_t *bytes, void *value)
{
    (void)attribute;
    (void)bytes;
    (void)value;
    return CUPTI_SUCCESS;
}

CUptiResult cuptiSetThreadIdType(CUpti_ActivityThreadIdType type)
{
    (void)type;
    return CUPTI_SUCCESS;
}

CUptiResult cuptiFinalize(void)
{
    return CUPTI_SUCCESS;
}

CUptiResult cuptiGetTimestamp(uint64_t *time)
{
    *time = sim_now();
    return CUPTI_SUCCESS;
}

CUptiResult cuptiGetDeviceId(CUcontext context, uint32_t *id)
{
    (void)context;
    *id = 0;
    return CUPTI_SUCCESS;
}

CUptiResult cuptiGetContextId(CUcontext context, uint32_t *id)
{
    (void)context;
    *id = 1;
    return CUPTI_SUCCESS;
}

CUptiResult cuptiGetStreamIdEx(CUcontext context, CUstream stream, uint8_t per_thread, uint32_t *id)
{
    (void)context;
    (void)per_thread;
    *id = sim_stream(stream)->id;
    return CUPTI_SUCCESS;
}

// Also of executable graphs, which begin with a graph.
CUptiResult cuptiGetGraphId(CUgraph graph, uint32_t *id)
{
    *id = graph ? graph->id : 0;
    return CUPTI_SUCCESS;
}

CUptiResult cuptiGetGraphExecId(CUgraphExec graph, uint32_t *id)
{
    return cuptiGetGraphId((CUgraph)graph, id);
}

CUptiResult cuptiGetGraphNodeId(CUgraphNode node, uint64_t *id)
{
    *id = node ? node->id : 0;
    return CUPTI_SUCCESS;
}

CUptiResult cuptiDeviceSupported(CUdevice device, int *supported)
{
    *supported = device == 0;
    return CUPTI_SUCCESS;
}

CUptiResult cuptiGetVersion(uint32_t *version)
{
    *version = CUPTI_API_VERSION;
    return CUPTI_SUCCESS;
}

CUptiResult cuptiGetResultString(CUptiResult result, const char **text)
{
    switch (result) {
    case CUPTI_SUCCESS:
        *text = "CUPTI_SUCCESS";
        break;
    case CUPTI_ERROR_INSUFFICIENT_PRIVILEGES:
        *text = "CUPTI_ERROR_INSUFFICIENT_PRIVILEGES";
        break;
    case CUPTI_ERROR_NOT_SUPPORTED:
        *text = "CUPTI_ERROR_NOT_SUPPORTED";
        break;
    default:
        *text = "an error of the simulated CUPTI";
    }
    return CUPTI_SUCCESS;
}
