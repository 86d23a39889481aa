"""What the splash attention of JAX and its copies in other projects have in common."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .operation import Operation
from .places import Arguments, Config, Fields
from .splash import MakerHook, identity_of

_BLOCKS = Fields(
    "block_sizes",
    (
        "block_q",
        "block_kv",
        "block_kv_compute",
        "block_q_dkv",
        "block_kv_dkv",
        "block_kv_dkv_compute",
        "block_q_dq",
        "block_kv_dq",
    ),
)


def splash_operations(
    prefix: str, module: str, yml: Callable[[Arguments, Config], dict[str, Any]] | None = None
) -> list[Operation]:
    """The functions of a module that make its kernels."""
    return [
        Operation(
            op=f"{prefix}.splash_{heads}",
            function=f"{module}:make_splash_{heads}{more}",
            place=_BLOCKS,
            space={"block_q": (128, 256, 512), "block_kv": (256, 512, 1024), "block_kv_compute": (256, 512)},
            static_key={"made": identity_of},
            stand_in=MakerHook,
            platforms=("tpu",),
            yml=yml,
        )
        for heads in ("mha", "mqa")
        for more in ("", "_single_device")
    ]
