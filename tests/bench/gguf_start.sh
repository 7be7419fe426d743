#!/usr/bin/env bash
# From the start of a process to the first token of a GGUF file, in turns with llama.cpp, and peak memory.
#
#   tests/bench/gguf_start.sh FILE.gguf LLAMA_COMPLETION [ROUNDS]
#
# LLAMA_COMPLETION is the program `llama-completion` of a native build of llama.cpp. Prints seconds and
# KiB of every start; compare medians.
set -euo pipefail
file=$1 llama=$2 rounds=${3:-7}
root=$(cd "$(dirname "$0")/../.." && pwd)
prompt="The capital of France is"
for _ in $(seq "$rounds"); do
  /usr/bin/time -f "parscale  %e s  %M KiB" deno run -A --no-check "$root/mod.ts" generate \
    --model "$file" --prompt "$prompt" --max-tokens 1 2>&1 > /dev/null | tail -1
  /usr/bin/time -f "llama.cpp %e s  %M KiB" "$llama" -m "$file" -p "$prompt" -n 1 -t 2 -no-cnv \
    --no-warmup 2>&1 > /dev/null < /dev/null | tail -1
done
