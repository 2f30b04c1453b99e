#!/bin/bash
# A run on every host of a Cloud TPU slice: BUCKET=gs://mine PROJECT=mine ZONE=us-east5-a bash cloud-tpu.sh
set -eu
NAME=${NAME:-shardes}
TYPE=${TYPE:-v5litepod-16}
tpu() { gcloud compute tpus tpu-vm "$1" "$NAME" --project "$PROJECT" --zone "$ZONE" "${@:2}"; }

# Whatever ends this script, what was trained is kept, and nothing is left that costs.
trap 'tpu ssh --worker 0 --command "gcloud storage rsync --recursive run $BUCKET/run" || true; tpu delete --quiet' EXIT
tpu create --accelerator-type "$TYPE" --version "${VERSION:-v2-alpha-tpuv5-lite}"

# The checkout goes to every host, which installs it there with JAX for TPU.
git archive --format tar.gz --output shardes.tar.gz HEAD
gcloud compute tpus tpu-vm scp shardes.tar.gz "$NAME": --project "$PROJECT" --zone "$ZONE" --worker all
tpu ssh --worker all --command '
    mkdir -p shardes && tar -xzf shardes.tar.gz -C shardes && cd shardes && make sync
    "$(tools/bootstrap.sh uv)" pip install --python .venv "jax[tpu]"'

# Process 0 alone writes, into its home folder, which is kept in a bucket between the starts.
tpu ssh --worker 0 --command "gcloud storage rsync --recursive $BUCKET/run run || true"
tpu ssh --worker all --command 'cd shardes && .venv/bin/python docs/examples/many_hosts.py --out ~/run --distributed'
