#!/bin/bash
#SBATCH --job-name=shardes
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=8      # a process a GPU, as JAX expects it under SLURM
#SBATCH --gpus-per-node=8
#SBATCH --cpus-per-task=8
#SBATCH --time=12:00:00
#SBATCH --signal=TERM@300        # five minutes before the end: the run saves itself and exits with 143
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --output=%x-%j.out
# sbatch docs/examples/launch/slurm.sh, from the checkout. The folder must be one that all nodes share.

srun --kill-on-bad-exit=1 .venv/bin/python docs/examples/many_hosts.py --out run --distributed
code=$?
case $code in
    # Time is up; a process was lost; JAX aborted one that was left: the next start goes on from the checkpoint.
    143 | 75 | 134) [ "${SLURM_RESTART_COUNT:-0}" -lt 20 ] && scontrol requeue "$SLURM_JOB_ID" ;;
esac
exit $code
