#!/usr/bin/env bash
#SBATCH --job-name=autotune-lowered
#SBATCH --array=0-7
#SBATCH --ntasks=1
#SBATCH --gpus-per-task=1
#SBATCH --exclusive
#SBATCH --requeue
#
# One part of a module for each task of the array: see slurm-submit.sh.
set -euo pipefail

exec bash examples/fleet/tune-part.sh "$SLURM_ARRAY_TASK_ID" "$PARTS" "$@"
