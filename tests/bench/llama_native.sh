#!/usr/bin/env bash
# Builds llama.cpp natively, as the peer of decode.ts, serve_llama.ts, cold_start.ts and gguf_start.sh.
#
#   tests/bench/llama_native.sh [FOLDER]
#
# The sources are those in the Python package llama-cpp-python; needs pip, cmake and a C++ compiler. Prints the
# folder of its programs, which --llama takes. The next call finds them there. Takes 15 to 25 minutes.
set -euo pipefail
folder=${1:-${XDG_CACHE_HOME:-$HOME/.cache}/parscale-bench}
version=0.3.36
source=$folder/llama_cpp_python-$version/vendor/llama.cpp
programs=(llama-bench llama-batched-bench llama-server llama-completion)
if [ ! -x "$source/build/bin/${programs[-1]}" ]; then
  mkdir -p "$folder"
  python3 -m pip download --quiet --no-deps --no-binary :all: --dest "$folder" "llama-cpp-python==$version" >&2
  tar -xzf "$folder/llama_cpp_python-$version.tar.gz" -C "$folder"
  cmake -S "$source" -B "$source/build" -DCMAKE_BUILD_TYPE=Release -DGGML_NATIVE=ON -DLLAMA_CURL=OFF \
    -DLLAMA_OPENSSL=OFF -DLLAMA_BUILD_TESTS=OFF -DLLAMA_BUILD_EXAMPLES=OFF >&2
  cmake --build "$source/build" -j "$(nproc)" --target "${programs[@]}" >&2
fi
echo "$source/build/bin"
