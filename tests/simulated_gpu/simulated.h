// What the parts of the simulated driver share, and what the simulated runtime and CUPTI ask the driver.
//
// Handles are the driver's own structures: `cuda.h` leaves them incomplete, so that they are completed here.
#pragma once

#include <cuda.h>
#include <cupti.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// ---- the device -----------------------------------------------------------------------------------------------------

enum {
    SIM_MULTIPROCESSORS = 132,
    SIM_THREADS_PER_MULTIPROCESSOR = 2048,
    SIM_THREADS_PER_BLOCK = 1024,
    SIM_SHARED_BYTES_PER_BLOCK = 227 << 10,
    SIM_SHARED_BYTES_PER_MULTIPROCESSOR = 228 << 10,
};

// A setting `SIMULATED_GPU_<name>` of the environment; NULL if it is unset or empty.
const char *sim_setting(const char *name);
// Logs that a function was called that is only a stub.
void sim_log_stub(const char *function);

// Nanoseconds on the device's clock: the time since 1970 when the driver was loaded, and then a monotonic clock.
uint64_t sim_now(void);
// Sleeps until then.
void sim_wait_until(uint64_t time);

struct CUctx_st {
    unsigned flags;
};
// There is one device, hence one primary context.
extern struct CUctx_st sim_context;

// ---- the account ----------------------------------------------------------------------------------------------------

// Charges what the process's context takes, once.
CUresult sim_charge_context(void);
void sim_count_graph_launch(void);

// ---- kernels --------------------------------------------------------------------------------------------------------

struct CUfunc_st {
    // never freed, because CUPTI's records refer to it after a module is unloaded
    const char *name;
    CUmodule module;
    int registers;
    int local_bytes;
    int static_shared_bytes;
    int max_dynamic_shared_bytes;
};

// A kernel of which only the name is known, since its code is in a format that is not read.
CUfunction sim_named_function(const char *name);

// ---- what streams and graphs run ------------------------------------------------------------------------------------

struct sim_operation {
    // KERNEL, MEMCPY, MEMSET or HOST; in graphs also EMPTY, GRAPH and CONDITIONAL
    CUgraphNodeType type;
    union {
        CUDA_KERNEL_NODE_PARAMS kernel;
        CUDA_MEMCPY3D copy;
        CUDA_MEMSET_NODE_PARAMS fill;
        CUDA_HOST_NODE_PARAMS host;
    };
};

// Whether the device can run it.
CUresult sim_check_kernel(const CUDA_KERNEL_NODE_PARAMS *kernel);
// The made-up time that it takes.
uint64_t sim_duration_ns(const struct sim_operation *operation);
// The bytes that a copy or a fill touches.
size_t sim_bytes(const struct sim_operation *operation);
// Does to memory what it does; a kernel does nothing.
void sim_apply(const struct sim_operation *operation);

struct CUstream_st {
    uint32_t id;
    unsigned flags;
    int priority;
    // when its last operation ends
    uint64_t end;
    // the graph that records what is submitted, while the stream is captured
    CUgraph capture;
    struct CUstream_st *next;
};

// The stream of a handle; NULL and the two special handles mean the default stream.
CUstream sim_stream(CUstream handle);
// Runs an operation, or adds it to the graph if the stream is captured.
CUresult sim_submit(CUstream handle, const struct sim_operation *operation);
// Runs an operation on behalf of a node of a graph, or of nothing (both ids 0). Returns when it begins.
uint64_t sim_run(CUstream stream, const struct sim_operation *operation, uint32_t graph_id, uint64_t node_id);
// When everything that was submitted ends, to one stream or to all.
uint64_t sim_end_of(CUstream stream);
uint64_t sim_end_of_all_streams(void);

struct CUgraph_st {
    uint32_t id;
    uint32_t nodes_made;
    CUgraphNode first;
    CUgraphNode last;
};

// Adds a node that depends on those before it; for stream capture.
CUresult sim_append_node(CUgraph graph, const struct sim_operation *operation);

struct CUgraphNode_st {
    uint64_t id;
    struct sim_operation operation;
    // of a child graph (one) or a conditional node (one a branch)
    CUgraph *bodies;
    size_t body_count;
    size_t dependency_count;
    bool disabled;
    // the node it was cloned from
    CUgraphNode original;
    CUgraph graph;
    CUgraphNode next;
};

// ---- CUPTI ----------------------------------------------------------------------------------------------------------

// A call of the driver's API, as CUPTI reports it.
struct sim_call {
    CUpti_CallbackId id;
    const char *name;
    const void *params;
    // the kernel that is launched
    const char *symbol;
    uint32_t correlation;
    uint64_t data;
    CUresult result;
};

#define SIM_CALL(function, kernel, ...)              \
    {                                                \
        .id = CUPTI_DRIVER_TRACE_CBID_##function,    \
        .name = #function,                           \
        .params = &(function##_params){__VA_ARGS__}, \
        .symbol = (kernel),                          \
    }

// Everything that a call does lies between the two.
void sim_enter(struct sim_call *call);
CUresult sim_leave(struct sim_call *call, CUresult result);

// An operation that was put on the device's time line; GRAPH stands for the whole launch of a graph.
struct sim_record {
    CUgraphNodeType type;
    const struct sim_operation *operation;
    uint64_t start;
    uint64_t end;
    uint32_t stream_id;
    uint32_t correlation;
    uint32_t graph_id;
    uint64_t node_id;
};

struct sim_tracer {
    void (*call)(struct sim_call *call, CUpti_ApiCallbackSite site);
    void (*graph)(CUpti_CallbackIdResource event, CUpti_GraphData *data);
    void (*record)(const struct sim_record *record);
};

// Set by the simulated CUPTI when it is loaded.
extern const struct sim_tracer *sim_tracer;
// Of the call that is being made on this thread.
extern __thread uint32_t sim_correlation;
