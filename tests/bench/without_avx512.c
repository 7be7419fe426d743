/*
 * Lets ONNX Runtime believe that the processor has AVX2 and FMA but neither AVX-512 nor VNNI, so that one
 * machine measures both kinds of kernels. x86-64 Linux only.
 *
 *   gcc -O1 -shared -fPIC -o without_avx512.so tests/bench/without_avx512.c -ldl
 *   objdump -d --no-show-raw-insn LIBONNXRUNTIME | awk '$2 == "cpuid" { sub(":", "", $1); print $1 }' > offsets
 *   CPUID_OFFSETS=offsets LD_PRELOAD=./without_avx512.so deno run -A tests/bench/decode.ts ...
 *
 * As soon as the library is loaded its `cpuid` instructions become `ud2`, which have the same length, and
 * the handler of SIGILL answers in their place. For llama.cpp `llama_native.sh FOLDER avx2` gives a library
 * that uses no more either.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <link.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>

#define BIT(n) (1u << (n))
#define LARGEST_LIBRARY ((uintptr_t)64 << 20)

static uintptr_t library;

static void answer(int signal_number, siginfo_t *info, void *context) {
  (void)info;
  greg_t *r = ((ucontext_t *)context)->uc_mcontext.gregs;
  if ((uintptr_t)r[REG_RIP] - library >= LARGEST_LIBRARY) {
    signal(signal_number, SIG_DFL); /* another illegal instruction: let it end the process */
    return;
  }
  uint32_t leaf = r[REG_RAX], part = r[REG_RCX], a, b, c, d;
  __asm__ volatile("cpuid" : "=a"(a), "=b"(b), "=c"(c), "=d"(d) : "a"(leaf), "c"(part));
  if (leaf == 7 && part == 0) {
    b &= ~(BIT(16) | BIT(17) | BIT(21) | BIT(26) | BIT(27) | BIT(28) | BIT(30) | BIT(31)); /* AVX-512 */
    c &= ~(BIT(1) | BIT(6) | BIT(11) | BIT(12) | BIT(14));           /* its VBMI, VNNI, BITALG, VPOPCNTDQ */
    d &= ~(BIT(2) | BIT(3) | BIT(8) | BIT(22) | BIT(23) | BIT(24) | BIT(25)); /* its rest, FP16, AMX */
  }
  if (leaf == 7 && part == 1) {
    a &= ~(BIT(4) | BIT(5));           /* AVX-VNNI, AVX-512 BF16 */
    d &= ~(BIT(4) | BIT(5) | BIT(10)); /* AVX-VNNI for other types */
  }
  r[REG_RAX] = a;
  r[REG_RBX] = b;
  r[REG_RCX] = c;
  r[REG_RDX] = d;
  r[REG_RIP] += 2;
}

static void patch(uintptr_t base, FILE *offsets) {
  library = base;
  unsigned long offset;
  while (fscanf(offsets, "%lx", &offset) == 1) {
    uint8_t *at = (uint8_t *)(base + offset);
    void *page = (void *)((uintptr_t)at & ~(uintptr_t)4095);
    mprotect(page, 2 * 4096, PROT_READ | PROT_WRITE | PROT_EXEC);
    if (at[0] == 0x0f && at[1] == 0xa2) at[1] = 0x0b;
  }
  struct sigaction action = {.sa_sigaction = answer, .sa_flags = SA_SIGINFO | SA_NODEFER};
  sigaction(SIGILL, &action, NULL);
}

void *dlopen(const char *name, int mode) {
  static void *(*next)(const char *, int);
  if (!next) next = (void *(*)(const char *, int))dlsym(RTLD_NEXT, "dlopen");
  void *handle = next(name, mode);
  const char *path = getenv("CPUID_OFFSETS");
  if (handle && path && !library && name && strstr(name, "libonnxruntime.so")) {
    struct link_map *map;
    FILE *offsets = fopen(path, "r");
    if (offsets && dlinfo(handle, RTLD_DI_LINKMAP, &map) == 0) patch(map->l_addr, offsets);
    if (offsets) fclose(offsets);
  }
  return handle;
}
