// The threads of a block as fibers of one OS thread, and where they meet.
//
// Blocks run one after the other, and their threads start in order. One that has to wait leaves its
// stack and another continues, first those that may, then those that have not started; so a thread
// that never waits costs a call, and a block without a wait uses one stack. __syncthreads waits for
// all threads of a block, also for those that have returned, since CUDA promises nothing better; and
// nothing runs at the same time, so races are not found.
#pragma once
#include "emulator/threads.hpp"

namespace emulator {

inline void makeReady(int base, unsigned lanes) {
  if (lanes) block.ready[block.endReady++ % MAX_BATCHES] = {base, lanes};
}

inline bool someReady() { return block.firstReady != block.endReady; }

inline void enter(Thread& thread) {
  current = &thread;
  threadIdx = thread.index;
}

inline Thread& nextReady() {
  Batch& batch = block.ready[block.firstReady % MAX_BATCHES];
  Thread& next = threads[batch.base + __builtin_ctz(batch.lanes)];
  batch.lanes &= batch.lanes - 1;
  if (!batch.lanes) block.firstReady++;
  return next;
}

inline void meetWhoIsLeft(Warp& warp);

// What a stack does: one thread after the other, until another has to continue.
inline void work() {
  const int stack = block.newStack;
  do {
    Thread& thread = threads[block.started];
    const int number = block.started++;
    thread.number = number;
    thread.lane = number % LANES;
    thread.warp = &warps[number / LANES];
    thread.index = block.next;
    if (++block.next.x == blockDim.x) {
      block.next.x = 0;
      if (++block.next.y == blockDim.y) block.next.y = 0, block.next.z++;
    }
    thread.returned = false;
    enter(thread);
    block.kernel(block.parameters);
    current->returned = true;
    block.finished++;
    Warp& warp = *current->warp;
    warp.returned |= 1u << current->lane;
    if (warp.meetings) meetWhoIsLeft(warp);
  } while (!someReady() && block.started < block.size);
  block.freeStacks[block.freeCount++] = stack;
  Context ended;
  if (someReady()) {
    Thread& next = nextReady();
    enter(next);
    switchContext(ended, next.context);
  } else {
    switchContext(ended, block.scheduler);
  }
}

inline Context freshStack() {
  block.newStack = block.freeStacks[--block.freeCount];
  return freshContext(machine->stacks + STACK_STRIDE * block.newStack, work);
}

// Leaves the current thread until it is made ready. Never inlined: all threads come back to
// the same place, which is what the processor predicts.
__attribute__((noinline)) void wait() {
  Thread& self = *current;
  if (someReady()) {
    Thread& next = nextReady();
    enter(next);
    if (&next != &self) switchContext(self.context, next.context);
  } else if (block.started < block.size) {
    switchContext(self.context, freshStack());
  } else {
    switchContext(self.context, block.scheduler);  // no thread can continue
  }
}

inline void complete(Warp& warp, int which) {
  const Meeting meeting = warp.meeting[which];
  warp.meeting[which] = warp.meeting[--warp.meetings];
  meeting.resolve(warp.record, meeting.arrived);
  const unsigned self = current->returned ? 0 : 1u << current->lane;
  makeReady((int)(&warp - warps) * LANES, meeting.arrived & ~self);
}

// Lanes that have returned are not waited for.
inline void meetWhoIsLeft(Warp& warp) {
  for (int i = warp.meetings - 1; i >= 0; i--) {
    const Meeting& each = warp.meeting[i];
    if (each.arrived == (each.mask & ~warp.returned)) complete(warp, i);
  }
}

// Meets the lanes of a mask; `resolve` is called once, when the last one is there.
inline void meet(const char* name, unsigned mask, Resolve resolve, void* record) {
  Warp& warp = *current->warp;
  const int lane = current->lane;
  if (!(mask >> lane & 1)) fail("%s with mask %08x, which leaves out lane %d", name, mask, lane);
  int which = 0;
  while (which < warp.meetings && warp.meeting[which].mask != mask) which++;
  if (which == warp.meetings) warp.meeting[warp.meetings++] = {mask, 0, resolve, name};
  Meeting& meeting = warp.meeting[which];
  if (meeting.resolve != resolve) {
    fail("%s while lanes %08x of the warp are in %s", name, meeting.arrived, meeting.name);
  }
  meeting.arrived |= 1u << lane;
  warp.record[lane] = record;
  if (meeting.arrived == (mask & ~warp.returned)) complete(warp, which);
  else wait();
}

inline void barrier() {
  if (++block.waiting < block.size) return wait();
  block.waiting = 0;
  for (int base = 0; base < block.size; base += LANES) {
    const int rest = block.size - base;
    const unsigned all = rest < LANES ? ~(~0u << rest) : ~0u;
    const unsigned self = current->number - current->lane == base ? 1u << current->lane : 0;
    makeReady(base, all & ~self);
  }
}

inline void reportDeadlock() {
  for (int i = 0; i * LANES < block.size; i++) {
    if (!warps[i].meetings) continue;
    const Meeting& first = warps[i].meeting[0];
    return reportHere(": %s with mask %08x reached by lanes %08x of warp %d only", first.name,
                      first.mask, first.arrived, i);
  }
  reportHere(": barrier reached by %d of %d threads", block.waiting, block.size);
}

inline void runBlock() {
  for (int i = 0; i * LANES < block.size; i++) {
    const int lanes = block.size - i * LANES;
    warps[i].returned = lanes < LANES ? ~0u << lanes : 0;
    warps[i].meetings = 0;
  }
  block.started = block.finished = block.waiting = 0;
  block.firstReady = block.endReady = 0;
  block.next = {0, 0, 0};
  memset(__start_shared, POISON, __stop_shared - __start_shared);
  switchContext(block.scheduler, freshStack());
  if (!block.failed && block.finished < block.size) reportDeadlock();
}

// Runs all blocks; false when machine->message says what went wrong.
inline bool runGrid(Machine* on, const char* name, void (*kernel)(void**), void** parameters,
                    dim3 grid, dim3 size) {
  machine = on, kernelName = name, gridDim = grid, blockDim = size;
  block.kernel = kernel, block.parameters = parameters;
  block.size = (int)(size.x * size.y * size.z), block.failed = false;
  block.freeCount = 0;
  for (int i = MAX_THREADS; i-- > 0;) block.freeStacks[block.freeCount++] = i;
  // A fault is a signal on the stack of the thread that caused it; siglongjmp leaves that stack.
  sigjmp_buf afterFault;
  if (sigsetjmp(afterFault, 0)) {
    reportHere(
        ", thread (%u, %u, %u): an access that is misaligned, outside an array or to no memory",
        threadIdx.x, threadIdx.y, threadIdx.z);
  } else {
    *on->fault = &afterFault;
    for (unsigned z = 0; z < grid.z; z++) {
      for (unsigned y = 0; y < grid.y; y++) {
        for (unsigned x = 0; x < grid.x && !block.failed; x++) {
          blockIdx = {x, y, z};
          runBlock();
        }
      }
    }
  }
  *on->fault = nullptr;
  return !block.failed;
}

}  // namespace emulator
