// What graphs and executable graphs share.
#pragma once

#include "simulated.h"

void sim_tell_tracer(CUpti_CallbackIdResource event, CUpti_GraphData data);
void sim_start_graph(CUgraph graph);
// Removes its nodes.
void sim_empty_graph(CUgraph graph);
void sim_copy_nodes(CUgraph to, CUgraph from);
// The copy of a node in a copied graph, at any depth.
CUgraphNode sim_copy_of(CUgraph graph, CUgraphNode original);
// The operation of a node that has no bodies.
CUresult sim_operation_of(struct sim_operation *operation, const CUgraphNodeParams *params);
// Fails if there is no node, or one of another type.
CUresult sim_set_operation(CUgraphNode node, const struct sim_operation *operation);
