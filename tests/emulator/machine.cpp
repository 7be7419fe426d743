// The memory of an emulated machine, guarded, and its matrix products.
//
// Device memory is host memory: 256-byte aligned, poisoned, with guards on both sides that a launch
// must leave as they are. Faults of kernels are signals; the handler belongs to the
// whole process, goes back to the launch under way on its thread, and hands every other fault to
// the previous handler. The library is therefore never unloaded.
#include "emulator/machine.hpp"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

using namespace emulator;

namespace {

constexpr int SIGNALS[] = {SIGSEGV, SIGBUS, SIGILL};
struct sigaction earlier[3];
thread_local sigjmp_buf* fault;

void onFault(int number, siginfo_t* info, void* context) {
  if (fault) siglongjmp(*fault, 1);
  for (int i = 0; i < 3; i++) {
    if (SIGNALS[i] != number) continue;
    if (earlier[i].sa_flags & SA_SIGINFO) return earlier[i].sa_sigaction(number, info, context);
    sigaction(number, &earlier[i], nullptr);  // happens again as soon as this returns
  }
}

// In front of each allocation; the bytes given out begin GUARD_BYTES behind its end.
struct alignas(256) Allocation {
  Allocation *next, *before;
  size_t bytes;
};

Allocation list = {&list, &list, 0};
unsigned char untouched[GUARD_BYTES];

unsigned char* bytesOf(Allocation* each) {
  return reinterpret_cast<unsigned char*>(each + 1) + GUARD_BYTES;
}

}  // namespace

EXPORTED Machine* machineOpen() {
  memset(untouched, POISON, sizeof untouched);
  for (int i = 0; i < 3; i++) {
    struct sigaction action = {};
    action.sa_sigaction = onFault;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
    sigaction(SIGNALS[i], &action, &earlier[i]);
  }
  auto* machine = static_cast<Machine*>(calloc(1, sizeof(Machine)));
  void* stacks = mmap(nullptr, STACK_STRIDE * MAX_THREADS, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  madvise(stacks, STACK_STRIDE * MAX_THREADS, MADV_HUGEPAGE);
  machine->stacks = static_cast<char*>(stacks);
  machine->fault = &fault;
  return machine;
}

EXPORTED const char* machineMessage(Machine* machine) { return machine->message; }

EXPORTED void* machineAllocate(size_t bytes) {
  const size_t all = sizeof(Allocation) + 2 * GUARD_BYTES + bytes;
  auto* each = static_cast<Allocation*>(aligned_alloc(256, (all + 255) / 256 * 256));
  if (!each) return nullptr;
  memset(each, POISON, all);
  *each = {&list, list.before, bytes};
  each->before->next = list.before = each;
  return bytesOf(each);
}

EXPORTED void machineFree(unsigned char* address) {
  Allocation* each = reinterpret_cast<Allocation*>(address - GUARD_BYTES) - 1;
  each->before->next = each->next;
  each->next->before = each->before;
  free(each);
}

// An allocation whose guard is damaged, and makes it whole; null where there is none.
EXPORTED void* machineDamaged() {
  for (Allocation* each = list.next; each != &list; each = each->next) {
    unsigned char* bytes = bytesOf(each);
    unsigned char* ends[] = {bytes - GUARD_BYTES, bytes + each->bytes};
    bool damaged = false;
    for (unsigned char* guard : ends) {
      if (memcmp(guard, untouched, GUARD_BYTES) == 0) continue;
      memset(guard, POISON, GUARD_BYTES);
      damaged = true;
    }
    if (damaged) return bytes;
  }
  return nullptr;
}

EXPORTED void machineCopy(void* to, const void* from, size_t bytes) { memmove(to, from, bytes); }

EXPORTED void machineSet(void* to, int value, size_t bytes) { memset(to, value, bytes); }

// Copies parameters: `out` becomes an array of their addresses with the values behind it, 8 bytes each.
EXPORTED void machineParameters(void** out, void* const* from, const int* sizes, int count) {
  for (int i = 0; i < count; i++) {
    out[i] = out + count + i;
    memcpy(out[i], from[i], abs(sizes[i]));
  }
}
