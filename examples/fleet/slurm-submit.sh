#!/usr/bin/env bash
# Tunes a module on a Slurm cluster, from this folder's repository: slurm-submit.sh OUT [ARGUMENT…]
#
# MODULE, REGISTRY and CACHES are as for tune-part.sh, on a file system that every node has. The array has PARTS tasks;
# PART_LIST names those to run, by default all. OUT is written after all of them.
set -euo pipefail

out=$1
shift
export MODULE REGISTRY CACHES PARTS=${PARTS:-8}
array=$(sbatch --parsable --array="${PART_LIST:-0-$((PARTS - 1))}" examples/fleet/slurm.sh "$@")
sbatch --parsable --dependency="afterok:$array" --kill-on-invalid-dep=yes examples/fleet/slurm-merge.sh "$out"
