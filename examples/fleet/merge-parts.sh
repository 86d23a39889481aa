#!/usr/bin/env bash
# Merges the caches of all parts that tune-part.sh left in CACHES: merge-parts.sh PARTS OUT
set -euo pipefail

parts=$1 out=$2
: "${CACHES:?names the folder of the caches}"
caches=()
for ((part = 0; part < parts; part++)); do
    cache=$CACHES/part-$part-of-$parts
    if [ ! -d "$cache" ]; then
        echo "$cache is missing: tune part $part of $parts again, then merge" >&2
        exit 1
    fi
    caches+=("$cache")
done
exec autotune-lowered cache merge "${caches[@]}" -o "$out"
