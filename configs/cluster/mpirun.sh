#!/usr/bin/env bash
# Trains over the machines of `hostfile`, started by mpirun of Open MPI.
#
#     configs/cluster/mpirun.sh --model DIR --data train.jsonl --out runs/first
#
# Model, rows and output directory lie at the same path on every machine (a shared file system, or copies: their content is
# compared at the start). Only process 0 writes. The same command with --resume continues after a loss, at any number of ranks.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)

# Processes all told: slots of the hostfile.
processes=${PROCESSES:-8}
# Threads of each process: the cores of a machine over its processes.
threads=${THREADS:-8}
# Where the shared library of the collective `mpi` lies (cargo xtask plugins --mpi builds it).
plugins=${PLUGIN_DIR:-/opt/espalier/plugins}

# --map-by slot   numbers the processes machine by machine, which the program expects.
# --bind-to none  leaves the placing of threads to the system.
# sigkill_timeout lets a run that is asked to stop (Ctrl-C) save a checkpoint: Open MPI kills after 1 s otherwise. After a loss
#                 mpirun itself waits as long; the processes do not.
exec mpirun -n "$processes" --hostfile "$here/hostfile" \
    --map-by slot --bind-to none \
    --mca odls_base_sigkill_timeout 15 \
    host train --plugins nf4,lora,fsdp,mpi --plugin-dir "$plugins" --threads "$threads" "$@"
