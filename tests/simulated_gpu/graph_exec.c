// Executable graphs. A launch runs their nodes in the order in which they were added, one after another, on its stream.
#include "graph.h"

#include <stdlib.h>

// A copy of a graph, whose nodes know which nodes they were copied from.
struct CUgraphExec_st {
    struct CUgraph_st graph;
};

static CUresult instantiate(CUgraphExec *executable, CUgraph graph)
{
    *executable = calloc(1, sizeof **executable);
    sim_start_graph(&(*executable)->graph);
    sim_copy_nodes(&(*executable)->graph, graph);
    sim_tell_tracer(CUPTI_CBID_RESOURCE_GRAPHEXEC_CREATED, (CUpti_GraphData){.graph = graph, .graphExec = *executable});
    return CUDA_SUCCESS;
}

CUresult cuGraphInstantiateWithFlags(CUgraphExec *executable, CUgraph graph, unsigned long long flags)
{
    struct sim_call call = SIM_CALL(cuGraphInstantiateWithFlags, NULL, executable, graph, flags);
    sim_enter(&call);
    return sim_leave(&call, instantiate(executable, graph));
}

CUresult cuGraphInstantiateWithParams(CUgraphExec *executable, CUgraph graph, CUDA_GRAPH_INSTANTIATE_PARAMS *params)
{
    struct sim_call call = SIM_CALL(cuGraphInstantiateWithParams, NULL, executable, graph, params);
    sim_enter(&call);
    params->result_out = CUDA_GRAPH_INSTANTIATE_SUCCESS;
    return sim_leave(&call, instantiate(executable, graph));
}

CUresult cuGraphExecDestroy(CUgraphExec executable)
{
    sim_empty_graph(&executable->graph);
    free(executable);
    return CUDA_SUCCESS;
}

// Whether both have the same nodes; what the nodes do may differ.
static bool same_topology(CUgraph one, CUgraph other)
{
    CUgraphNode a = one->first, b = other->first;
    for (; a && b; a = a->next, b = b->next) {
        if (a->operation.type != b->operation.type || a->body_count != b->body_count)
            return false;
        for (size_t i = 0; i < a->body_count; i++)
            if (!same_topology(a->bodies[i], b->bodies[i]))
                return false;
    }
    return !a && !b;
}

static void update_nodes(CUgraph graph, CUgraph from)
{
    for (CUgraphNode a = graph->first, b = from->first; a && b; a = a->next, b = b->next) {
        a->operation = b->operation;
        a->original = b;
        for (size_t i = 0; i < a->body_count; i++)
            update_nodes(a->bodies[i], b->bodies[i]);
    }
}

CUresult cuGraphExecUpdate_v2(CUgraphExec executable, CUgraph graph, CUgraphExecUpdateResultInfo *info)
{
    *info = (CUgraphExecUpdateResultInfo){.result = CU_GRAPH_EXEC_UPDATE_SUCCESS};
    if (!same_topology(&executable->graph, graph)) {
        info->result = CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED;
        return CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE;
    }
    update_nodes(&executable->graph, graph);
    return CUDA_SUCCESS;
}

CUresult cuGraphExecKernelNodeSetParams_v2(CUgraphExec executable, CUgraphNode node,
                                           const CUDA_KERNEL_NODE_PARAMS *params)
{
    return cuGraphKernelNodeSetParams_v2(sim_copy_of(&executable->graph, node), params);
}

CUresult cuGraphExecMemcpyNodeSetParams(CUgraphExec executable, CUgraphNode node, const CUDA_MEMCPY3D *params,
                                        CUcontext context)
{
    (void)context;
    return cuGraphMemcpyNodeSetParams(sim_copy_of(&executable->graph, node), params);
}

CUresult cuGraphExecMemsetNodeSetParams(CUgraphExec executable, CUgraphNode node, const CUDA_MEMSET_NODE_PARAMS *params,
                                        CUcontext context)
{
    (void)context;
    return cuGraphMemsetNodeSetParams(sim_copy_of(&executable->graph, node), params);
}

CUresult cuGraphExecNodeSetParams(CUgraphExec executable, CUgraphNode node, CUgraphNodeParams *params)
{
    struct sim_operation operation;
    CUresult result = sim_operation_of(&operation, params);
    return result == CUDA_SUCCESS ? sim_set_operation(sim_copy_of(&executable->graph, node), &operation) : result;
}

CUresult cuGraphExecChildGraphNodeSetParams(CUgraphExec executable, CUgraphNode node, CUgraph child)
{
    CUgraphNode copy = sim_copy_of(&executable->graph, node);
    if (!copy || copy->operation.type != CU_GRAPH_NODE_TYPE_GRAPH || !same_topology(copy->bodies[0], child))
        return CUDA_ERROR_INVALID_VALUE;
    update_nodes(copy->bodies[0], child);
    return CUDA_SUCCESS;
}

CUresult cuGraphNodeSetEnabled(CUgraphExec executable, CUgraphNode node, unsigned enabled)
{
    CUgraphNode copy = sim_copy_of(&executable->graph, node);
    if (!copy)
        return CUDA_ERROR_INVALID_VALUE;
    copy->disabled = !enabled;
    return CUDA_SUCCESS;
}

CUresult cuGraphUpload(CUgraphExec executable, CUstream stream)
{
    (void)executable;
    (void)stream;
    return CUDA_SUCCESS;
}

// Returns when the first operation begins; `begin` if there is none.
static uint64_t run_nodes(CUgraph graph, CUstream stream, uint32_t id, uint64_t begin)
{
    for (CUgraphNode node = graph->first; node; node = node->next) {
        if (node->disabled)
            continue;
        switch (node->operation.type) {
        case CU_GRAPH_NODE_TYPE_GRAPH:
            begin = run_nodes(node->bodies[0], stream, id, begin);
            break;
        case CU_GRAPH_NODE_TYPE_EMPTY:
        // a kernel would have to set its condition, so that its bodies never run
        case CU_GRAPH_NODE_TYPE_CONDITIONAL:
            break;
        default: {
            uint64_t start = sim_run(stream, &node->operation, id, node->id);
            begin = begin ? begin : start;
        }
        }
    }
    return begin;
}

CUresult cuGraphLaunch(CUgraphExec executable, CUstream handle)
{
    struct sim_call call = SIM_CALL(cuGraphLaunch, NULL, executable, handle);
    CUstream stream = sim_stream(handle);
    sim_enter(&call);
    if (stream->capture)
        return sim_leave(&call, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    sim_count_graph_launch();
    uint32_t id = executable->graph.id;
    uint64_t begin = run_nodes(&executable->graph, stream, id, 0);
    struct sim_record whole = {
        .type = CU_GRAPH_NODE_TYPE_GRAPH,
        .start = begin,
        .end = sim_end_of(stream),
        .stream_id = stream->id,
        .correlation = call.correlation,
        .graph_id = id,
    };
    if (sim_tracer && begin)
        sim_tracer->record(&whole);
    return sim_leave(&call, CUDA_SUCCESS);
}
