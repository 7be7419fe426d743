#!/usr/bin/env bash
# Checks an image made by the Containerfile: `bash tests/platform/container.sh docker|podman IMAGE`.
# Read-only and without HOME, under limits of memory and processor time, and as the first process.
set -euo pipefail
cd "$(dirname "$0")/../.."
engine=$1 image=$2
models=$PWD/fixtures/models
failed=0

# check NAME PATTERN TEXT: whether the text has the pattern.
check() {
  if grep -qE "$2" <<< "$3"; then echo "ok: $1"; else
    echo "FAILED: $1: no match of $2 in: $3"
    failed=1
  fi
}
run() { $engine run --rm --network none "$@" 2>&1 || echo "exit code $?"; }

check "starts" '^parscale [0-9]' "$(run "$image" --version)"
check "is not root" '^[1-9][0-9]*$' "$(run --entrypoint id "$image" -u)"
check "generates, read-only and without HOME" '^ ?[A-Za-z.]' \
  "$(run --read-only --env HOME= --volume "$models:/models:ro" "$image" \
    generate --model /models/word-problems -p 'Ann has 3' --max-tokens 4)"
limited=$(run --memory 1g --cpus 1 "$image" doctor)
check "counts the cores of its limit" 'cores +ok +1 usable' "$limited"
check "counts the memory of its limit" 'memory .* of 1\.0 GiB' "$limited"

# A first process with and without tini, and both signals.
for entry in tini parscale; do
  for signal in TERM INT; do
    [ "$signal" = TERM ] && code=143 || code=130
    arguments=(generate --model /models/word-problems -p 'Ann has 3' --max-tokens 200 --num-return 200)
    [ "$entry" = parscale ] || arguments=(-- parscale "${arguments[@]}")
    id=$($engine run --detach --network none --entrypoint "$entry" \
      --volume "$models:/models:ro" "$image" "${arguments[@]}" --temperature 1)
    sleep 4
    $engine kill --signal "$signal" "$id" > /dev/null
    check "SIG$signal ends $entry as the first process" "^$code\$" "$($engine wait "$id")"
    $engine rm --force "$id" > /dev/null
  done
done
exit "$failed"
