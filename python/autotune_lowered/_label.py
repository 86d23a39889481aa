"""The label of a call, on every operation that the call traces.

A label stands in two places. The scope is in the operations' names, of which HLO keeps what is before an `@`, and at
most about 1,024 characters. The payload of XLA's metadata is kept whole and at its place when calls are inlined, but
only operations of a traced program have it, and profiles without HLO show names alone. So both are set.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from typing import Any

from ._jax import jax_for

# its name among XLA's metadata
PAYLOAD = "xla_metadata_payload"

# JAX takes a payload since the first version, and spells it as it was given since the second; before, in lower case
_CARRIED, _SPELLED = (0, 8), (0, 10, 1)


@contextlib.contextmanager
def labelled(text: str, values: Iterable[Any]) -> Iterator[None]:
    """Label what is traced inside, a call of these values, in both places."""
    with jax_for("labels need").named_scope(text), payload(text, values):
        yield


def payload(text: str, values: Iterable[Any]) -> contextlib.AbstractContextManager[Any]:
    """Label what is traced inside, a call of these values, in the payload, after those of the calls around it.

    Nothing is labelled that runs at once: it has no module, and JAX would compile each operation again for each label.
    """
    version = jax_for("labels need").__version_info__
    carried = version >= _SPELLED or (version >= _CARRIED and text == text.lower())
    if not carried or not any(map(_is_traced, values)):
        return contextlib.nullcontext()
    from jax.experimental.xla_metadata import set_xla_metadata as carry

    around = _payload_around()
    if around is not None:
        # rules of differentiation may be traced where their call's label is in force
        text = around if f"/{around}".endswith(f"/{text}") else f"{around}/{text}"
    labelled_inside: contextlib.AbstractContextManager[Any] = carry(**{PAYLOAD: text})
    return labelled_inside


def _payload_around() -> str | None:
    """The payload in force, whoever set it; JAX has no public name for it."""
    try:
        from jax._src.xla_metadata_lib import current_xla_metadata
    except ImportError:
        return None
    around: str | None = (current_xla_metadata() or {}).get(PAYLOAD)
    return around


def _is_traced(value: Any) -> bool:
    """Whether a value is one of a program that is being traced; under an eager `vmap` or `grad` it is not."""
    jax = jax_for("labels need")
    while isinstance(value, jax.core.Tracer):
        value = getattr(value, "primal", getattr(value, "val", None))
        if not isinstance(value, jax.Array):
            return True
    return False
