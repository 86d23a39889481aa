"""Makes the state in force part of JAX's trace cache keys, so that a jitted function is traced again when it changes.

JAX with `jax.make_user_context` (0.7.2 and later) has a key for this package in its caches, per thread: traces of
several states are kept side by side. Older JAX has no public key, so a change clears all its caches
(`jax.clear_caches`), and only one thread at a time may have overlays open.
"""

import contextlib
import logging
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

_LOG = logging.getLogger("autotune_lowered")

_lock = threading.RLock()
_context: Any = None
_process = 0
_open = threading.local()

# only needed if JAX's caches must be cleared: the generations that tunables were traced under since then, the
# overlays that are open, and the thread that opened them
_traced: set[int] = set()
_opened: list[int] = []
_owner: int | None = None
_warned = False


def _user_context() -> Any:
    """This package's key in JAX, created once; `None` if there is no JAX or it has no such keys."""
    global _context
    if _context is None:
        try:
            import jax
        except ImportError:
            return None
        with _lock:
            if _context is None and hasattr(jax, "make_user_context"):
                _context = jax.make_user_context(_process)
    return _context


def _of_this_thread() -> list[int]:
    stack: list[int] = _open.__dict__.setdefault("stack", [])
    return stack


def begin_with(generation: int) -> None:
    """Make `generation` what the key starts with. JAX does not see it yet, so jitted functions need not be traced
    again."""
    global _process
    _process = generation


def connect() -> None:
    """Make JAX key its traces from now on, if it is already imported."""
    if "jax" in sys.modules:
        _user_context()


def set_process(generation: int) -> None:
    """Make `generation` the key of every thread that has no overlay open."""
    global _process
    with _lock:
        _process = generation
        if "jax" not in sys.modules:
            # nothing is traced yet, so the key starts with this value
            return
        context = _user_context()
        if context is None:
            if not _opened:
                _clear_unless(generation)
        elif hasattr(context, "set_global"):
            context.set_global(generation)
        else:
            # JAX 0.7.2 to 0.8 key by thread alone
            _clear_unless(generation)


@contextlib.contextmanager
def entered(generation: int) -> Iterator[None]:
    """Make `generation` the key of this thread for the span of the block."""
    context = _user_context()
    stack = _of_this_thread()
    with contextlib.ExitStack() as leave:
        if context is not None:
            leave.enter_context(context(generation))
        elif "jax" in sys.modules:
            leave.enter_context(_exclusive(generation))
        leave.enter_context(_without_await())
        stack.append(generation)
        leave.callback(stack.pop)
        yield


def check(generation: int, op_id: str) -> None:
    """Called when a tunable is traced: the state it uses must be the one under which JAX caches the trace.

    Raises RuntimeError if they differ: the overlay was entered in another task or thread.
    """
    with _lock:
        if _user_context() is None and "jax" in sys.modules:
            key = _opened[-1] if _opened else _process
            _traced.add(generation)
        else:
            stack = _of_this_thread()
            key = stack[-1] if stack else _process
            if not stack:
                _traced.add(generation)
    if key != generation:
        raise RuntimeError(
            f"{op_id} is traced where an overlay of another task or thread is open, and JAX would mix their traces; "
            "enter overlays in the thread that calls the function, and do not await inside them"
        )


@contextlib.contextmanager
def _exclusive(generation: int) -> Iterator[None]:
    """The span of an overlay if JAX's caches can only be cleared."""
    global _owner
    this = threading.get_ident()
    with _lock:
        if _owner not in (None, this):
            raise RuntimeError(
                f"another thread has an overlay open, and this JAX ({_jax_version()}) cannot keep the traces of two "
                "threads apart; use a JAX that has jax.make_user_context"
            )
        _owner = this
        _opened.append(generation)
        _clear_unless(generation)
    try:
        yield
    finally:
        with _lock:
            _opened.pop()
            if not _opened:
                _owner = None
            _clear_unless(_opened[-1] if _opened else _process)


def _clear_unless(generation: int) -> None:
    """Forget all traces if a tunable was traced under another state than this."""
    global _warned
    if _traced <= {generation}:
        return
    _traced.clear()
    jax = sys.modules.get("jax")
    if jax is None:
        return
    if not _warned:
        _warned = True
        _LOG.warning(
            "the configs in force changed, and this JAX (%s) cannot key its traces by that: all its caches are "
            "cleared at each such change, and every jitted function compiles again; a newer JAX traces what changed",
            _jax_version(),
        )
    jax.clear_caches()


def _jax_version() -> str:
    return getattr(sys.modules.get("jax"), "__version__", "none")


@contextlib.contextmanager
def _without_await() -> Iterator[None]:
    """Raises RuntimeError at its end if an event loop ran inside it, because other tasks then saw this thread's key."""
    turned = _loop_turned()
    try:
        yield
    except BaseException:
        turned()
        raise
    if turned():
        raise RuntimeError(
            "an overlay was held across an await; other tasks of this thread may have run with its configs: "
            "await outside of it, or run the function in a thread that enters the overlay itself"
        )


def _loop_turned() -> Callable[[], bool]:
    """Returns a function that says whether this thread's event loop has run since; call it once."""
    asyncio = sys.modules.get("asyncio")
    try:
        loop = asyncio.get_running_loop() if asyncio is not None else None
    except RuntimeError:
        loop = None
    if loop is None:
        return lambda: False
    turns: list[bool] = []
    handle = loop.call_soon(turns.append, True)

    def turned() -> bool:
        handle.cancel()
        return bool(turns)

    return turned
