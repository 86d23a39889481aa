"""Values of the arrays that steer a kernel, valid by construction: batches of paged attention, sizes of groups."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

Kinds = Mapping[str, Callable[..., Any]]


def each(kinds: Kinds, values: Callable[..., Any]) -> dict[str, Callable[..., Any]]:
    """For each kind of batch, the values of a call's arrays: what `values` makes with it."""
    return {name: functools.partial(values, make) for name, make in kinds.items()}


def even_groups(total: int, groups: int) -> Any:
    """Sizes of groups that are as equal as possible."""
    import numpy as np

    whole, rest = divmod(total, groups)
    return np.full(groups, whole, np.int32) + (np.arange(groups) < rest).astype(np.int32)


def zipf_groups(total: int, groups: int) -> Any:
    """Sizes of groups of which the n-th has a share of 1/n, as tokens choose experts."""
    import numpy as np

    shares = total / (np.arange(1, groups + 1) * (1 / np.arange(1, groups + 1)).sum())
    sizes = np.floor(shares).astype(np.int32)
    # the largest group has what rounding leaves
    sizes[:1] += total - sizes.sum(dtype=np.int32)
    return sizes


def experts(make: Callable[[int, int], Any], tokens: int, each: int, count: int) -> Any:
    """For each token the experts that it chooses, all different: how many tokens choose an expert is what `make` gives,
    as far as there are tokens."""
    import numpy as np

    sizes = np.minimum(make(tokens * each, count), tokens)
    for expert in range(count):
        # what was cut from the most popular ones
        sizes[expert] += min(tokens - sizes[expert], tokens * each - sizes.sum())
    # no expert is in a column twice, because none is there more often than there are columns
    chosen = np.repeat(np.arange(count, dtype=np.int32), sizes).reshape(each, tokens).T
    return np.random.RandomState(0).permutation(chosen)


def lengths(sequences: int, longest: int, seed: int = 0) -> Any:
    """Lengths of sequences that are decoded, evenly spread from a quarter of the longest to the longest."""
    import numpy as np

    spread = np.linspace(max(1, longest // 4), longest, sequences).astype(np.int32)
    return np.random.RandomState(seed).permutation(spread).astype(np.int32)


def longest(sequences: int, length: int) -> Any:
    """Sequences that all have the same length."""
    import numpy as np

    return np.full(sequences, length, np.int32)


def pages(count: int, total: int, seed: int = 0) -> Any:
    """The pages of all sequences in turn, as they lie in a pool that has been used for a while: in any order."""
    import numpy as np

    return np.resize(np.random.RandomState(seed).permutation(total), count).astype(np.int32)


def starts_of_queries(sequences: int, tokens: int, decoded: int) -> Any:
    """Where each sequence's queries begin among all tokens, and where the last one's end: the first `decoded` sequences
    have one token each, the others share the rest evenly."""
    import numpy as np

    decoded = min(decoded, sequences, tokens)
    ones = np.ones(decoded, np.int32)
    rest = even_groups(tokens - decoded, sequences - decoded) if sequences > decoded else np.zeros(0, np.int32)
    return np.concatenate([[0], np.cumsum(np.concatenate([ones, rest]))]).astype(np.int32)


def mixed(sequences: int, entries: int, tokens: int, total: int, size: int) -> dict[str, Any]:
    """A batch of ragged paged attention: half of the sequences decode, and the others have what is left of the tokens.

    `entries` is the length of all page tables together, and the pool has `total` pages of this `size`.
    """
    return _ragged(sequences, entries, tokens, total, size, decoded=sequences // 2)


def decode(sequences: int, entries: int, tokens: int, total: int, size: int) -> dict[str, Any]:
    """The same in which every sequence decodes, as far as there are tokens."""
    return _ragged(sequences, entries, tokens, total, size, decoded=sequences)


def _ragged(sequences: int, entries: int, tokens: int, total: int, size: int, decoded: int) -> dict[str, Any]:
    import numpy as np

    longest, decoded = entries // sequences * size, min(decoded, tokens)
    starts = starts_of_queries(sequences, tokens, decoded)
    lens = np.minimum(np.maximum(lengths(sequences, longest), np.diff(starts)), longest)
    return {
        "kv_lens": lens.astype(np.int32),
        "page_indices": pages(entries, total),
        "cu_q_lens": starts,
        "distribution": np.array([decoded, decoded, sequences], np.int32),
    }


# the kinds of batches that steer a kernel, the usual one first
GROUPS: Kinds = {"even": even_groups, "zipf": zipf_groups}
LENGTHS: Kinds = {"spread": lengths, "longest": longest}
RAGGED: Kinds = {"mixed": mixed, "decode": decode}
