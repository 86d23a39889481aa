"""ejkernel's own tuner on the same functions: `python benches/decisions/peer.py ROUNDS STORE CASE…` (ejkernel 0.0.80).

`peers.py` describes the arguments and what is printed.
"""

import peers
from ejkernel.ops.config.persistent import PersistentCache
from ejkernel.ops.config.selection import Tuner
from ejkernel.ops.utils.fingerprint import device_fingerprint


def tune(name, case, arguments, store):
    # as ejkernel's selector chain does: look in the persistent cache, else measure and keep the winner there
    cache = store and PersistentCache(name, path=str(store / f"{name}.json"))
    key = device_fingerprint(), f"{case.op}@v1", name
    found = cache and cache.get(*key)
    if found is not None:
        return vars(found), True
    winner = Tuner().autotune(case.function, arguments, {}, case.configs)
    if cache:
        cache.put(*key, winner)
    return winner, False


if __name__ == "__main__":
    peers.main("ejkernel", tune)
