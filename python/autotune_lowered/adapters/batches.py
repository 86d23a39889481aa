"""Values of the arrays that steer a kernel, valid by construction: batches of paged attention, sizes of groups."""

from __future__ import annotations

from typing import Any


def even_groups(total: int, groups: int) -> Any:
    """Sizes of groups that are as equal as possible."""
    import numpy as np

    whole, rest = divmod(total, groups)
    return np.full(groups, whole, np.int32) + (np.arange(groups) < rest).astype(np.int32)


def lengths(sequences: int, longest: int, seed: int = 0) -> Any:
    """Lengths of sequences that are decoded, evenly spread from a quarter of the longest to the longest."""
    import numpy as np

    spread = np.linspace(max(1, longest // 4), longest, sequences).astype(np.int32)
    return np.random.RandomState(seed).permutation(spread).astype(np.int32)


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


def ragged(sequences: int, entries: int, tokens: int, total: int, size: int) -> dict[str, Any]:
    """A batch of ragged paged attention: half of the sequences decode, and the others have what is left of the tokens.

    `entries` is the length of all page tables together, and the pool has `total` pages of this `size`.
    """
    import numpy as np

    longest, decoded = entries // sequences * size, sequences // 2
    starts = starts_of_queries(sequences, tokens, decoded)
    lens = np.minimum(np.maximum(lengths(sequences, longest), np.diff(starts)), longest)
    return {
        "kv_lens": lens.astype(np.int32),
        "page_indices": pages(entries, total),
        "cu_q_lens": starts,
        "distribution": np.array([decoded, decoded, sequences], np.int32),
    }
