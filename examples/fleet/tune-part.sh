#!/usr/bin/env bash
# Tunes one part of a module into a cache of its own: tune-part.sh PART PARTS [ARGUMENT…]
#
# MODULE and REGISTRY name what is tuned. CACHES is the folder for the parts' caches. The arguments go to
# autotune-lowered. When a part runs again, it measures only what is still undecided.
set -euo pipefail

part=${1:?names the part, counted from 0} parts=${2:?says how many parts there are}
shift 2
: "${MODULE:?names the module}" "${REGISTRY:?names the folder of recordings}" "${CACHES:?names a folder for the caches}"
mkdir -p "$CACHES"
# a signal that ends this job also ends the tuner, which keeps its measurements
signalled=0
trap 'signalled=1; kill -TERM ${!:-} 2>/dev/null || :' INT TERM
autotune-lowered "$MODULE" --registry "$REGISTRY" --shard "$part/$parts" --cache "$CACHES/part-$part-of-$parts" "$@" &
tuner=$!
[ "$signalled" = 0 ] || kill -TERM "$tuner" 2>/dev/null || :
signalled=1
# a signal ends `wait`, too; the tuner's status is then that of another `wait`, even if the tuner has ended meanwhile
while [ "$signalled" = 1 ]; do
    signalled=0 code=0
    wait "$tuner" || code=$?
done
if [ "$code" = 1 ]; then
    echo "part $part of $parts: some calls are not tuned, as shown above; trying again would not help" >&2
    code=0
fi
exit "$code"
