#!/usr/bin/env bash
# Builds llama.cpp natively, as the peer of decode.ts, serve_llama.ts, cold_start.ts and gguf_start.sh.
#
#   tests/bench/llama_native.sh [FOLDER [avx2]]
#
# The sources are those in the Python package llama-cpp-python; needs pip, cmake and a C++ compiler. Prints the
# folder of its programs, which --llama takes. The next call finds them there. Takes 15 to 25 minutes.
# With `avx2` it prints a folder for LD_LIBRARY_PATH instead: in it the programs find a library of kernels that
# uses nothing newer, as without_avx512.c lets ONNX Runtime do.
set -euo pipefail
folder=${1:-${XDG_CACHE_HOME:-$HOME/.cache}/parscale-bench}
version=0.3.36
source=$folder/llama_cpp_python-$version/vendor/llama.cpp
options=(-DCMAKE_BUILD_TYPE=Release -DLLAMA_CURL=OFF -DLLAMA_OPENSSL=OFF -DLLAMA_BUILD_TESTS=OFF
  -DLLAMA_BUILD_EXAMPLES=OFF)
programs=(llama-bench llama-batched-bench llama-server llama-completion)
if [ ! -x "$source/build/bin/${programs[-1]}" ]; then
  mkdir -p "$folder"
  python3 -m pip download --quiet --no-deps --no-binary llama-cpp-python --dest "$folder" "llama-cpp-python==$version" >&2
  tar -xzf "$folder/llama_cpp_python-$version.tar.gz" -C "$folder"
  cmake -S "$source" -B "$source/build" "${options[@]}" -DGGML_NATIVE=ON >&2
  cmake --build "$source/build" -j "$(nproc)" --target "${programs[@]}" >&2
fi
if [ "${2:-}" != avx2 ]; then
  echo "$source/build/bin"
  exit
fi
if [ ! -e "$source/build-avx2/bin/libggml-cpu.so" ]; then
  cmake -S "$source" -B "$source/build-avx2" "${options[@]}" -DGGML_NATIVE=OFF -DGGML_AVX=ON -DGGML_AVX2=ON \
    -DGGML_FMA=ON -DGGML_F16C=ON -DGGML_BMI2=ON >&2
  cmake --build "$source/build-avx2" -j "$(nproc)" --target ggml-cpu >&2
fi
echo "$source/build-avx2/bin"
