#!/usr/bin/env bash
# From the start of a process to the first token of a GGUF file, in turns with llama.cpp, and peak memory.
#
#   tests/bench/gguf_start.sh FILE.gguf LLAMA_COMPLETION [ROUNDS]
#
# LLAMA_COMPLETION is the program `llama-completion` of a native build of llama.cpp. Prints seconds and
# KiB of every start; compare medians. The first start keeps weights, which the second finds.
set -euo pipefail
file=$1 llama=$2 rounds=${3:-7}
root=$(cd "$(dirname "$0")/../.." && pwd)
prompt="The capital of France is"
PARSCALE_CACHE=$(mktemp -d)
export PARSCALE_CACHE
trap 'rm -rf "$PARSCALE_CACHE"' EXIT
timed() {
  local name=$1
  shift
  /usr/bin/time -f "$name %e s  %M KiB" "$@" 2>&1 > /dev/null < /dev/null | tail -1
}
parscale() {
  timed "$1" deno run -A --no-check "$root/mod.ts" generate --model "$file" --prompt "$prompt" \
    --max-tokens 1 "${@:2}"
}
for _ in $(seq "$rounds"); do
  rm -rf "$PARSCALE_CACHE/weights"
  parscale "first start "
  parscale "second start"
  parscale "not kept    " --no-weight-cache
  timed "llama.cpp   " "$llama" -m "$file" -p "$prompt" -n 1 -t 2 -c 512 -no-cnv --no-warmup
done
