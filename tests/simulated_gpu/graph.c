// Graphs, which XLA calls command buffers, and their nodes.
#include "graph.h"

#include <stdlib.h>
#include <string.h>

void sim_tell_tracer(CUpti_CallbackIdResource event, CUpti_GraphData data)
{
    if (sim_tracer)
        sim_tracer->graph(event, &data);
}

void sim_start_graph(CUgraph graph)
{
    static uint32_t made;
    *graph = (struct CUgraph_st){.id = __atomic_add_fetch(&made, 1, __ATOMIC_RELAXED)};
}

static CUgraphNode add_node(CUgraph graph, const struct sim_operation *operation, size_t dependency_count)
{
    CUgraphNode node = calloc(1, sizeof *node);
    node->id = (uint64_t)graph->id << 32 | graph->nodes_made++;
    node->operation = *operation;
    node->dependency_count = dependency_count;
    node->graph = graph;
    if (graph->last)
        graph->last->next = node;
    else
        graph->first = node;
    graph->last = node;
    return node;
}

void sim_empty_graph(CUgraph graph)
{
    while (graph->first) {
        CUgraphNode node = graph->first;
        graph->first = node->next;
        for (size_t i = 0; i < node->body_count; i++) {
            sim_empty_graph(node->bodies[i]);
            free(node->bodies[i]);
        }
        free(node->bodies);
        free(node);
    }
    graph->last = NULL;
}

static void add_bodies(CUgraphNode node, size_t count)
{
    node->body_count = count;
    node->bodies = calloc(count, sizeof *node->bodies);
    for (size_t i = 0; i < count; i++) {
        node->bodies[i] = calloc(1, sizeof **node->bodies);
        sim_start_graph(node->bodies[i]);
    }
}

void sim_copy_nodes(CUgraph to, CUgraph from)
{
    for (CUgraphNode original = from->first; original; original = original->next) {
        CUgraphNode node = add_node(to, &original->operation, original->dependency_count);
        node->original = original;
        node->disabled = original->disabled;
        sim_tell_tracer(CUPTI_CBID_RESOURCE_GRAPHNODE_CLONED, (CUpti_GraphData){.graph = to,
                                                                                .originalGraph = from,
                                                                                .node = node,
                                                                                .originalNode = original,
                                                                                .nodeType = node->operation.type});
        add_bodies(node, original->body_count);
        for (size_t i = 0; i < original->body_count; i++)
            sim_copy_nodes(node->bodies[i], original->bodies[i]);
    }
}

CUgraphNode sim_copy_of(CUgraph graph, CUgraphNode original)
{
    for (CUgraphNode node = graph->first; node; node = node->next) {
        if (node->original == original)
            return node;
        for (size_t i = 0; i < node->body_count; i++) {
            CUgraphNode inside = sim_copy_of(node->bodies[i], original);
            if (inside)
                return inside;
        }
    }
    return NULL;
}

// ---- graphs ---------------------------------------------------------------------------------------------------------

CUresult cuGraphCreate(CUgraph *graph, unsigned flags)
{
    struct sim_call call = SIM_CALL(cuGraphCreate, NULL, graph, flags);
    sim_enter(&call);
    *graph = calloc(1, sizeof **graph);
    sim_start_graph(*graph);
    sim_tell_tracer(CUPTI_CBID_RESOURCE_GRAPH_CREATED, (CUpti_GraphData){.graph = *graph});
    return sim_leave(&call, CUDA_SUCCESS);
}

CUresult cuGraphClone(CUgraph *clone, CUgraph original)
{
    struct sim_call call = SIM_CALL(cuGraphClone, NULL, clone, original);
    sim_enter(&call);
    *clone = calloc(1, sizeof **clone);
    sim_start_graph(*clone);
    sim_copy_nodes(*clone, original);
    sim_tell_tracer(CUPTI_CBID_RESOURCE_GRAPH_CLONED, (CUpti_GraphData){.graph = *clone, .originalGraph = original});
    return sim_leave(&call, CUDA_SUCCESS);
}

CUresult cuGraphDestroy(CUgraph graph)
{
    sim_empty_graph(graph);
    free(graph);
    return CUDA_SUCCESS;
}

// Writes as many nodes as there is room for, and how many there are; without `nodes`, only the latter.
static CUresult list_nodes(CUgraph graph, bool only_roots, CUgraphNode *nodes, size_t *count)
{
    size_t found = 0;
    for (CUgraphNode node = graph->first; node; node = node->next) {
        if (only_roots && node->dependency_count)
            continue;
        if (nodes && found < *count)
            nodes[found] = node;
        found++;
    }
    *count = found;
    return CUDA_SUCCESS;
}

CUresult cuGraphGetNodes(CUgraph graph, CUgraphNode *nodes, size_t *count)
{
    return list_nodes(graph, false, nodes, count);
}

CUresult cuGraphGetRootNodes(CUgraph graph, CUgraphNode *nodes, size_t *count)
{
    return list_nodes(graph, true, nodes, count);
}

CUresult cuGraphNodeGetType(CUgraphNode node, CUgraphNodeType *type)
{
    *type = node->operation.type;
    return CUDA_SUCCESS;
}

CUresult cuGraphNodeFindInClone(CUgraphNode *node, CUgraphNode original, CUgraph clone)
{
    *node = sim_copy_of(clone, original);
    return *node ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuGraphConditionalHandleCreate(CUgraphConditionalHandle *handle, CUgraph graph, CUcontext context,
                                        unsigned launch_value, unsigned flags)
{
    (void)graph;
    (void)context;
    (void)launch_value;
    (void)flags;
    static CUgraphConditionalHandle made;
    *handle = __atomic_add_fetch(&made, 1, __ATOMIC_RELAXED);
    return CUDA_SUCCESS;
}

// ---- nodes ----------------------------------------------------------------------------------------------------------

static CUresult kernel_operation(struct sim_operation *operation, const CUDA_KERNEL_NODE_PARAMS *params)
{
    *operation = (struct sim_operation){.type = CU_GRAPH_NODE_TYPE_KERNEL, .kernel = *params};
    if (!params->func)
        operation->kernel.func = (CUfunction)params->kern;
    // kernels compute nothing, and the caller's arrays do not outlive the call
    operation->kernel.kernelParams = NULL;
    operation->kernel.extra = NULL;
    return sim_check_kernel(&operation->kernel);
}

static CUresult make_node(CUgraphNode *made, CUgraph graph, size_t dependency_count,
                          const struct sim_operation *operation)
{
    *made = add_node(graph, operation, dependency_count);
    sim_tell_tracer(CUPTI_CBID_RESOURCE_GRAPHNODE_CREATED,
                    (CUpti_GraphData){.graph = graph, .node = *made, .nodeType = operation->type});
    return CUDA_SUCCESS;
}

static CUresult make_child(CUgraphNode *made, CUgraph graph, size_t dependency_count, CUgraph child, bool move)
{
    struct sim_operation operation = {.type = CU_GRAPH_NODE_TYPE_GRAPH};
    CUresult result = make_node(made, graph, dependency_count, &operation);
    add_bodies(*made, 1);
    if (move) {
        free((*made)->bodies[0]);
        (*made)->bodies[0] = child;
    } else {
        sim_copy_nodes((*made)->bodies[0], child);
    }
    return result;
}

CUresult sim_append_node(CUgraph graph, const struct sim_operation *operation)
{
    CUgraphNode node;
    return make_node(&node, graph, graph->last ? 1 : 0, operation);
}

CUresult cuGraphAddKernelNode_v2(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies, size_t count,
                                 const CUDA_KERNEL_NODE_PARAMS *params)
{
    struct sim_call call = SIM_CALL(cuGraphAddKernelNode_v2, NULL, node, graph, dependencies, count, params);
    struct sim_operation operation;
    sim_enter(&call);
    CUresult result = kernel_operation(&operation, params);
    return sim_leave(&call, result == CUDA_SUCCESS ? make_node(node, graph, count, &operation) : result);
}

CUresult cuGraphAddMemcpyNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies, size_t count,
                              const CUDA_MEMCPY3D *params, CUcontext context)
{
    struct sim_call call = SIM_CALL(cuGraphAddMemcpyNode, NULL, node, graph, dependencies, count, params, context);
    struct sim_operation operation = {.type = CU_GRAPH_NODE_TYPE_MEMCPY, .copy = *params};
    sim_enter(&call);
    return sim_leave(&call, make_node(node, graph, count, &operation));
}

CUresult cuGraphAddMemsetNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies, size_t count,
                              const CUDA_MEMSET_NODE_PARAMS *params, CUcontext context)
{
    struct sim_call call = SIM_CALL(cuGraphAddMemsetNode, NULL, node, graph, dependencies, count, params, context);
    struct sim_operation operation = {.type = CU_GRAPH_NODE_TYPE_MEMSET, .fill = *params};
    sim_enter(&call);
    return sim_leave(&call, make_node(node, graph, count, &operation));
}

CUresult cuGraphAddHostNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies, size_t count,
                            const CUDA_HOST_NODE_PARAMS *params)
{
    struct sim_call call = SIM_CALL(cuGraphAddHostNode, NULL, node, graph, dependencies, count, params);
    struct sim_operation operation = {.type = CU_GRAPH_NODE_TYPE_HOST, .host = *params};
    sim_enter(&call);
    return sim_leave(&call, make_node(node, graph, count, &operation));
}

CUresult cuGraphAddEmptyNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies, size_t count)
{
    struct sim_call call = SIM_CALL(cuGraphAddEmptyNode, NULL, node, graph, dependencies, count);
    struct sim_operation operation = {.type = CU_GRAPH_NODE_TYPE_EMPTY};
    sim_enter(&call);
    return sim_leave(&call, make_node(node, graph, count, &operation));
}

CUresult cuGraphAddChildGraphNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies, size_t count,
                                  CUgraph child)
{
    struct sim_call call = SIM_CALL(cuGraphAddChildGraphNode, NULL, node, graph, dependencies, count, child);
    sim_enter(&call);
    return sim_leave(&call, make_child(node, graph, count, child, false));
}

CUresult sim_operation_of(struct sim_operation *operation, const CUgraphNodeParams *params)
{
    *operation = (struct sim_operation){.type = params->type};
    switch (params->type) {
    case CU_GRAPH_NODE_TYPE_KERNEL: {
        CUDA_KERNEL_NODE_PARAMS kernel;
        // the later version of the structure begins with the earlier one
        memcpy(&kernel, &params->kernel, sizeof kernel);
        return kernel_operation(operation, &kernel);
    }
    case CU_GRAPH_NODE_TYPE_MEMCPY:
        operation->copy = params->memcpy.copyParams;
        return CUDA_SUCCESS;
    case CU_GRAPH_NODE_TYPE_MEMSET:
        memcpy(&operation->fill, &params->memset, sizeof operation->fill);
        return CUDA_SUCCESS;
    case CU_GRAPH_NODE_TYPE_HOST:
        operation->host = (CUDA_HOST_NODE_PARAMS){.fn = params->host.fn, .userData = params->host.userData};
        return CUDA_SUCCESS;
    case CU_GRAPH_NODE_TYPE_EMPTY:
    case CU_GRAPH_NODE_TYPE_CONDITIONAL:
        return CUDA_SUCCESS;
    default:
        return CUDA_ERROR_NOT_SUPPORTED;
    }
}

static CUresult make_any_node(CUgraphNode *node, CUgraph graph, size_t count, CUgraphNodeParams *params)
{
    if (params->type == CU_GRAPH_NODE_TYPE_GRAPH)
        return make_child(node, graph, count, params->graph.graph,
                          params->graph.ownership == CU_GRAPH_CHILD_GRAPH_OWNERSHIP_MOVE);
    struct sim_operation operation;
    CUresult result = sim_operation_of(&operation, params);
    if (result != CUDA_SUCCESS)
        return result;
    result = make_node(node, graph, count, &operation);
    if (params->type == CU_GRAPH_NODE_TYPE_CONDITIONAL) {
        add_bodies(*node, params->conditional.size);
        params->conditional.phGraph_out = (*node)->bodies;
    }
    return result;
}

CUresult cuGraphAddNode_v2(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies,
                           const CUgraphEdgeData *data, size_t count, CUgraphNodeParams *params)
{
    struct sim_call call = SIM_CALL(cuGraphAddNode_v2, NULL, node, graph, dependencies, data, count, params);
    sim_enter(&call);
    return sim_leave(&call, make_any_node(node, graph, count, params));
}

CUresult cuGraphKernelNodeSetAttribute(CUgraphNode node, CUkernelNodeAttrID attribute,
                                       const CUkernelNodeAttrValue *value)
{
    (void)node;
    (void)attribute;
    (void)value;
    return CUDA_SUCCESS;
}

CUresult cuGraphChildGraphNodeGetGraph(CUgraphNode node, CUgraph *graph)
{
    if (node->operation.type != CU_GRAPH_NODE_TYPE_GRAPH)
        return CUDA_ERROR_INVALID_VALUE;
    *graph = node->bodies[0];
    return CUDA_SUCCESS;
}

CUresult sim_set_operation(CUgraphNode node, const struct sim_operation *operation)
{
    if (!node || node->operation.type != operation->type)
        return CUDA_ERROR_INVALID_VALUE;
    node->operation = *operation;
    return CUDA_SUCCESS;
}

CUresult cuGraphKernelNodeSetParams_v2(CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS *params)
{
    struct sim_operation operation;
    CUresult result = kernel_operation(&operation, params);
    return result == CUDA_SUCCESS ? sim_set_operation(node, &operation) : result;
}

CUresult cuGraphMemcpyNodeSetParams(CUgraphNode node, const CUDA_MEMCPY3D *params)
{
    return sim_set_operation(node, &(struct sim_operation){.type = CU_GRAPH_NODE_TYPE_MEMCPY, .copy = *params});
}

CUresult cuGraphMemsetNodeSetParams(CUgraphNode node, const CUDA_MEMSET_NODE_PARAMS *params)
{
    return sim_set_operation(node, &(struct sim_operation){.type = CU_GRAPH_NODE_TYPE_MEMSET, .fill = *params});
}
