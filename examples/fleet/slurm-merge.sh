#!/usr/bin/env bash
#SBATCH --job-name=autotune-lowered-merge
#SBATCH --ntasks=1
set -euo pipefail

exec bash examples/fleet/merge-parts.sh "$PARTS" "$1"
