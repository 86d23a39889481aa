"""tune-jax on the same functions: `python benches/decisions/peer_tune_jax.py ROUNDS - CASE…` (tune-jax 0.8.3).

`peers.py` describes the arguments and what is printed. The file is not called `tune_jax.py`, because Python would then
import it instead of the package.
"""

import peers
from tune_jax import tune as tuned_by_tune_jax


def tune(name, case, arguments, store):
    # the package keeps results only in its process, so there is nothing to store
    assert store is None
    # a value must be hashable, and the configs of some spaces are no product: one parameter numbers them
    call = lambda *arrays, number: case.function(case.configs[number])(*arrays)
    tuned = tuned_by_tune_jax(call, hyperparams={"number": list(range(len(case.configs)))})
    tuned(*arguments)
    return case.configs[tuned.optimal_hyperparams["number"]], False


if __name__ == "__main__":
    peers.main("tune-jax", tune)
