"""Matrix products, grouped and quantized: what several projects have in common."""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable, Mapping
from typing import Any

from .._specs import spec_from_text
from . import batches
from .operation import Operation
from .places import Arguments, Config, Fields, Parts
from .tables import Row, SourceTable

TILING = Parts("tiling", ("tm", "tk", "tn"))
TILES = {name: (128, 256, 512) for name in TILING.names}


def gmm_baseline(call: Arguments) -> Config:
    """What a caller's function chooses for the sizes of `gmm`."""
    (m, k), n = call["lhs"].shape, call["rhs"].shape[1 if call["transpose_rhs"] else 2]
    return _tiling(call["tiling"], m, k, n)


def tgmm_baseline(call: Arguments) -> Config:
    """What a caller's function chooses for the sizes of `tgmm`."""
    (k, m), n = call["lhs"].shape, call["rhs"].shape[1]
    return _tiling(call["tiling"], m, k, n)


def _tiling(choose: Any, *sizes: int) -> Config:
    return dict(zip(TILING.names, choose(*sizes), strict=True))


def _sizes(axis: int) -> Callable[..., dict[str, Any]]:
    def sizes(make: Callable[[int, int], Any], call: Arguments) -> dict[str, Any]:
        return {"group_sizes": make(call["lhs"].shape[axis], call["group_sizes"].shape[0])}

    return sizes


# groups of rows; the left operand of `tgmm` is transposed
GROUPS = batches.each(batches.GROUPS, _sizes(0))
GROUPS_OF_COLUMNS = batches.each(batches.GROUPS, _sizes(1))


def tuned_gmm(op: str, function: str, table: str) -> Operation:
    """megablox's `gmm` with a table of tuned tiles, as tpu-inference and sglang-jax have it."""

    def key(call: Arguments) -> tuple[Any, ...]:
        (m, k), (groups, _, n), scale = call["lhs"].shape, call["rhs"].shape, call["rhs_scale"]
        names = (call["lhs"].dtype.name, call["rhs"].dtype.name)
        return (m, k, n, call["group_sizes"].shape[0], groups, *names, k // (1 if scale is None else scale.shape[1]))

    def baseline(call: Arguments) -> Config:
        """What the caller's function or the project's table says, or its heuristic."""
        (m, k), n, choose = call["lhs"].shape, call["rhs"].shape[2], call["tiling"]
        if choose is not None:
            return _tiling(choose, m, k, n)
        return _tiling(importlib.import_module(table).get_tuned_block_sizes, *key(call))

    return Operation(
        op=op,
        function=function,
        place=TILING,
        space={"tm": (128, 256, 512), "tk": (256, 512, 1024), "tn": (256, 512, 1024)},
        baseline=baseline,
        table=SourceTable(
            table,
            "TUNED_BLOCK_SIZES",
            lambda call, config, device: (key(call), tuple(config[name] for name in TILING.names)),
            lambda members, call: tuple(members["get_tuned_block_sizes"](*key(call))),
        ),
        steering=GROUPS,
        platforms=("tpu",),
    )


def gmm_v2(op: str, module: str, arrays: tuple[str, ...], options: tuple[str, ...]) -> Operation:
    """The second version of `gmm`, as MaxText and sglang-jax have it: what its configs are made of, by the order and
    the names of that function."""
    tiles = Fields(
        "tile_info",
        ("tile_m", "tile_k", "tile_n"),
        default=lambda: importlib.import_module(module).TileSizes(128, 128, 128),
    )

    def baseline(call: Arguments) -> Config:
        """What the caller's function, or the project's own, chooses for a call."""
        kernel = importlib.import_module(module)
        limit = call["vmem_limit_bytes"]
        chosen = kernel.make_gmm_configs(
            *(call[name] for name in arrays),
            kernel.jax.ShapeDtypeStruct((1,), "int32"),
            **{
                name: call[name]
                for name in ("tile_info", "acc_dtype", "maybe_quantize_lhs", "zero_initialize", *options)
            },
            vmem_limit_bytes=int(kernel.pltpu.get_tpu_info().vmem_capacity_bytes * 0.9) if limit is None else limit,
            out_dtype=call["preferred_element_type"],
        )
        return {name: getattr(chosen.tiles, name) for name in tiles.names}

    return Operation(
        op=op,
        function=f"{module}:gmm_v2",
        place=tiles,
        space={"tile_m": (128, 256, 512), "tile_k": (256, 512), "tile_n": (256, 512)},
        baseline=baseline,
        steering=GROUPS,
        platforms=("tpu",),
    )


def quantized_matmul(op: str, function: str, table: str) -> Operation:
    """The quantized product of tpu-inference and sglang-jax, with their table."""
    blocks = Fields(
        "tuned_value",
        ("batch_block_size", "out_block_size", "in_block_size"),
        default=lambda: importlib.import_module(table).TunedValue(128, 128, 128),
    )

    def question(call: Arguments) -> tuple[Any, ...]:
        """What the project's look-up is asked for a call."""
        (rows, inner), outer = call["x"].shape, call["w_q"].shape[0]
        return (rows, outer, inner, _dtype_of(call["x_q_dtype"], call["x"]), call["w_q"].dtype.name)

    def baseline(call: Arguments) -> Config:
        """What the project's table says, or its fallback."""
        chosen = importlib.import_module(table).get_tuned_block_sizes(*question(call))
        return {name: getattr(chosen, name) for name in blocks.names}

    def row(call: Arguments, config: Config, device: Mapping[str, Any]) -> Row:
        return (_tpu_version(device), *question(call)), tuple(config[name] for name in blocks.names)

    return Operation(
        op=op,
        function=function,
        place=blocks,
        space={
            "batch_block_size": (128, 256, 512),
            "out_block_size": (256, 512, 1024),
            "in_block_size": (256, 512, 1024),
        },
        baseline=baseline,
        fills={"w_q": {"kind": "integer-range", "low": -127, "high": 127}},
        table=SourceTable(
            table,
            "TUNED_BLOCK_SIZES_RAW",
            row,
            # a value may have members that are not tuned
            lambda members, call: tuple(members["get_tuned_block_sizes"](*question(call)))[: len(blocks.names)],
        ),
        platforms=("tpu",),
    )


def _tpu_version(device: Mapping[str, Any]) -> int:
    """The number in a TPU's name, as the projects' tables have it."""
    found = re.match(r"TPU[^\d]*(\d+)", device["device_kind"])
    if found is None:
        raise ValueError(f"`{device['device_kind']}` is no TPU, and the table holds nothing else")
    return int(found[1])


def _dtype_of(static: Any, spec: Any) -> str:
    """A type, as a call or as a record describes it, or that of an array."""
    import jax.numpy as jnp

    if static is None:
        return str(spec.dtype.name)
    named = spec_from_text(f"{static['dtype']}[]").dtype if isinstance(static, Mapping) else static
    return str(jnp.dtype(named).name)
