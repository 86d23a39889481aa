// Streams and events: a time line a stream, on which operations are laid one after another when they are submitted.
//
// Nothing waits for an operation but what waits for it on a real device. No operation begins before it was submitted.
#include "simulated.h"

#include <pthread.h>
#include <stdlib.h>

enum {
    // between two operations of a stream
    GAP_NS = 500,
    // Until an idle stream begins. What is submitted meanwhile follows without waiting for the host, so that the time
    // between two events does not depend on how fast the host is.
    START_NS = 20000,
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
// CUPTI gives the default stream the number 7
static struct CUstream_st default_stream = {.id = 7};
static struct CUstream_st *streams = &default_stream;

CUstream sim_stream(CUstream handle)
{
    return handle == NULL || handle == CU_STREAM_LEGACY || handle == CU_STREAM_PER_THREAD ? &default_stream : handle;
}

// When something that is submitted now begins.
static uint64_t next_start(CUstream stream)
{
    uint64_t now = sim_now();
    return stream->end > now ? stream->end : now + START_NS;
}

uint64_t sim_run(CUstream stream, const struct sim_operation *operation, uint32_t graph_id, uint64_t node_id)
{
    struct sim_record record = {
        .type = operation->type,
        .operation = operation,
        .stream_id = stream->id,
        .correlation = sim_correlation,
        .graph_id = graph_id,
        .node_id = node_id,
    };
    pthread_mutex_lock(&lock);
    record.start = next_start(stream) + GAP_NS;
    record.end = stream->end = record.start + sim_duration_ns(operation);
    pthread_mutex_unlock(&lock);
    sim_apply(operation);
    if (operation->type == CU_GRAPH_NODE_TYPE_HOST) {
        // what comes before it on the stream has ended when the host's function is called
        sim_wait_until(record.start);
        operation->host.fn(operation->host.userData);
    } else if (sim_tracer) {
        sim_tracer->record(&record);
    }
    return record.start;
}

CUresult sim_submit(CUstream handle, const struct sim_operation *operation)
{
    CUstream stream = sim_stream(handle);
    if (stream->capture)
        return sim_append_node(stream->capture, operation);
    sim_run(stream, operation, 0, 0);
    return CUDA_SUCCESS;
}

uint64_t sim_end_of(CUstream stream)
{
    pthread_mutex_lock(&lock);
    uint64_t end = stream->end;
    pthread_mutex_unlock(&lock);
    return end;
}

uint64_t sim_end_of_all_streams(void)
{
    uint64_t end = 0;
    pthread_mutex_lock(&lock);
    for (CUstream stream = streams; stream; stream = stream->next)
        if (stream->end > end)
            end = stream->end;
    pthread_mutex_unlock(&lock);
    return end;
}

// ---- streams --------------------------------------------------------------------------------------------------------

CUresult cuStreamCreateWithPriority(CUstream *handle, unsigned flags, int priority)
{
    static uint32_t made;
    CUstream stream = calloc(1, sizeof *stream);
    stream->flags = flags;
    stream->priority = priority;
    pthread_mutex_lock(&lock);
    stream->id = default_stream.id + ++made;
    stream->next = streams;
    streams = stream;
    pthread_mutex_unlock(&lock);
    *handle = stream;
    return CUDA_SUCCESS;
}

CUresult cuStreamCreate(CUstream *handle, unsigned flags)
{
    return cuStreamCreateWithPriority(handle, flags, 0);
}

CUresult cuStreamDestroy_v2(CUstream handle)
{
    pthread_mutex_lock(&lock);
    for (CUstream *at = &streams; *at; at = &(*at)->next)
        if (*at == handle) {
            *at = handle->next;
            free(handle);
            break;
        }
    pthread_mutex_unlock(&lock);
    return CUDA_SUCCESS;
}

CUresult cuStreamQuery(CUstream handle)
{
    return sim_end_of(sim_stream(handle)) <= sim_now() ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

CUresult cuStreamSynchronize(CUstream handle)
{
    struct sim_call call = SIM_CALL(cuStreamSynchronize, NULL, handle);
    sim_enter(&call);
    sim_wait_until(sim_end_of(sim_stream(handle)));
    return sim_leave(&call, CUDA_SUCCESS);
}

CUresult cuStreamGetCtx(CUstream handle, CUcontext *context)
{
    (void)handle;
    *context = &sim_context;
    return CUDA_SUCCESS;
}

CUresult cuStreamGetDevice(CUstream handle, CUdevice *device)
{
    (void)handle;
    *device = 0;
    return CUDA_SUCCESS;
}

CUresult cuStreamGetId(CUstream handle, unsigned long long *id)
{
    *id = sim_stream(handle)->id;
    return CUDA_SUCCESS;
}

CUresult cuStreamGetPriority(CUstream handle, int *priority)
{
    *priority = sim_stream(handle)->priority;
    return CUDA_SUCCESS;
}

CUresult cuStreamGetFlags(CUstream handle, unsigned *flags)
{
    *flags = sim_stream(handle)->flags;
    return CUDA_SUCCESS;
}

CUresult cuLaunchHostFunc(CUstream handle, CUhostFn function, void *data)
{
    struct sim_operation operation = {.type = CU_GRAPH_NODE_TYPE_HOST, .host = {.fn = function, .userData = data}};
    return sim_submit(handle, &operation);
}

// ---- capture --------------------------------------------------------------------------------------------------------

CUresult cuStreamBeginCaptureToGraph(CUstream handle, CUgraph graph, const CUgraphNode *dependencies,
                                     const CUgraphEdgeData *data, size_t count, CUstreamCaptureMode mode)
{
    (void)dependencies;
    (void)data;
    (void)count;
    (void)mode;
    CUstream stream = sim_stream(handle);
    if (stream->capture)
        return CUDA_ERROR_ILLEGAL_STATE;
    stream->capture = graph;
    return CUDA_SUCCESS;
}

CUresult cuStreamBeginCapture_v2(CUstream handle, CUstreamCaptureMode mode)
{
    CUgraph graph;
    CUresult result = cuGraphCreate(&graph, 0);
    return result == CUDA_SUCCESS ? cuStreamBeginCaptureToGraph(handle, graph, NULL, NULL, 0, mode) : result;
}

CUresult cuStreamEndCapture(CUstream handle, CUgraph *graph)
{
    CUgraph captured = sim_stream(handle)->capture;
    if (!captured)
        return CUDA_ERROR_ILLEGAL_STATE;
    *graph = captured;
    // also the streams that joined by waiting for an event of a captured one
    pthread_mutex_lock(&lock);
    for (CUstream stream = streams; stream; stream = stream->next)
        if (stream->capture == captured)
            stream->capture = NULL;
    pthread_mutex_unlock(&lock);
    return CUDA_SUCCESS;
}

CUresult cuStreamIsCapturing(CUstream handle, CUstreamCaptureStatus *status)
{
    *status = sim_stream(handle)->capture ? CU_STREAM_CAPTURE_STATUS_ACTIVE : CU_STREAM_CAPTURE_STATUS_NONE;
    return CUDA_SUCCESS;
}

CUresult cuStreamGetCaptureInfo_v3(CUstream handle, CUstreamCaptureStatus *status, cuuint64_t *id, CUgraph *graph,
                                   const CUgraphNode **dependencies, const CUgraphEdgeData **data, size_t *count)
{
    CUgraph captured = sim_stream(handle)->capture;
    *status = captured ? CU_STREAM_CAPTURE_STATUS_ACTIVE : CU_STREAM_CAPTURE_STATUS_NONE;
    if (captured && id)
        *id = captured->id;
    if (captured && graph)
        *graph = captured;
    if (dependencies)
        *dependencies = captured && captured->last ? &captured->last : NULL;
    if (data)
        *data = NULL;
    if (count)
        *count = captured && captured->last ? 1 : 0;
    return CUDA_SUCCESS;
}

CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode *mode)
{
    static __thread CUstreamCaptureMode current = CU_STREAM_CAPTURE_MODE_GLOBAL;
    CUstreamCaptureMode before = current;
    current = *mode;
    *mode = before;
    return CUDA_SUCCESS;
}

// ---- events ---------------------------------------------------------------------------------------------------------

struct CUevent_st {
    unsigned flags;
    bool recorded;
    uint64_t time;
    // if it was recorded in a captured stream
    CUgraph capture;
};

CUresult cuEventCreate(CUevent *handle, unsigned flags)
{
    *handle = calloc(1, sizeof **handle);
    (*handle)->flags = flags;
    return CUDA_SUCCESS;
}

CUresult cuEventDestroy_v2(CUevent event)
{
    free(event);
    return CUDA_SUCCESS;
}

CUresult cuEventRecord(CUevent event, CUstream handle)
{
    CUstream stream = sim_stream(handle);
    event->capture = stream->capture;
    event->recorded = !stream->capture;
    pthread_mutex_lock(&lock);
    event->time = stream->end = next_start(stream);
    pthread_mutex_unlock(&lock);
    return CUDA_SUCCESS;
}

CUresult cuEventRecordWithFlags(CUevent event, CUstream handle, unsigned flags)
{
    (void)flags;
    return cuEventRecord(event, handle);
}

CUresult cuEventQuery(CUevent event)
{
    return event->time <= sim_now() ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

CUresult cuEventSynchronize(CUevent event)
{
    struct sim_call call = SIM_CALL(cuEventSynchronize, NULL, event);
    sim_enter(&call);
    sim_wait_until(event->time);
    return sim_leave(&call, CUDA_SUCCESS);
}

CUresult cuEventElapsedTime_v2(float *milliseconds, CUevent start, CUevent end)
{
    if (!start->recorded || !end->recorded || (start->flags | end->flags) & CU_EVENT_DISABLE_TIMING)
        return CUDA_ERROR_INVALID_HANDLE;
    if (cuEventQuery(start) != CUDA_SUCCESS || cuEventQuery(end) != CUDA_SUCCESS)
        return CUDA_ERROR_NOT_READY;
    *milliseconds = (float)((double)(int64_t)(end->time - start->time) / 1e6);
    return CUDA_SUCCESS;
}

CUresult cuStreamWaitEvent(CUstream handle, CUevent event, unsigned flags)
{
    (void)flags;
    CUstream stream = sim_stream(handle);
    if (event->capture) {
        stream->capture = event->capture;
        return CUDA_SUCCESS;
    }
    pthread_mutex_lock(&lock);
    if (stream->end < event->time)
        stream->end = event->time;
    pthread_mutex_unlock(&lock);
    return CUDA_SUCCESS;
}
