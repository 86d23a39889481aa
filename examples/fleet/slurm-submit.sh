#!/usr/bin/env bash
# Tunes a module on a Slurm cluster, from this folder's repository: slurm-submit.sh OUT [ARGUMENT…]
#
# MODULE, REGISTRY and CACHES as for tune-part.sh, on a file system that every node has. The array has PARTS tasks, of
# which PART_LIST names those to run, all unless told; OUT is made when all of them are done.
set -euo pipefail

out=$1
shift
export MODULE REGISTRY CACHES PARTS=${PARTS:-8}
array=$(sbatch --parsable --array="${PART_LIST:-0-$((PARTS - 1))}" examples/fleet/slurm.sh "$@")
sbatch --parsable --dependency="afterok:$array" --kill-on-invalid-dep=yes examples/fleet/slurm-merge.sh "$out"
