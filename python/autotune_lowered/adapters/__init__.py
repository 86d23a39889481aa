"""Kernels of other projects as tunable operations, without a change to these projects."""
