// Stacks that wait, and how to continue with another one.
//
// A switch is a call that returns elsewhere: a few instructions on x86-64; on other processors what
// POSIX has for it, which is slower by a system call. Nothing is unwound when a
// context is given up; kernels have nothing to clean.
#pragma once
#include "emulator/machine.hpp"

#if defined(__x86_64__)
// Saves what a call has to keep on the stack, and the stack pointer in *from; continues at `to`.
extern "C" void emulatorSwitch(void** from, void* to);
asm(R"(
.text
.p2align 4
.hidden emulatorSwitch
.globl emulatorSwitch
.type emulatorSwitch, @function
emulatorSwitch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size emulatorSwitch, .-emulatorSwitch
)");

namespace emulator {

struct Context {
  void* stackPointer;
};

inline void switchContext(Context& from, const Context& to) {
  emulatorSwitch(&from.stackPointer, to.stackPointer);
}

// A context that calls `entry`, which never returns.
inline Context freshContext(char* stack, void (*entry)()) {
  const size_t end = (reinterpret_cast<size_t>(stack) + STACK_BYTES) & ~size_t(15);
  void** top = reinterpret_cast<void**>(end);
  *--top = nullptr;  // where a return address would be
  *--top = reinterpret_cast<void*>(entry);
  return {top - 6};  // the registers, whatever they hold
}

}  // namespace emulator
#else
#include <ucontext.h>

namespace emulator {

typedef ucontext_t Context;

inline void switchContext(Context& from, const Context& to) { swapcontext(&from, &to); }

inline Context freshContext(char* stack, void (*entry)()) {
  Context context;
  getcontext(&context);
  context.uc_stack.ss_sp = stack;
  context.uc_stack.ss_size = STACK_BYTES;
  context.uc_link = nullptr;
  makecontext(&context, entry, 0);
  return context;
}

}  // namespace emulator
#endif
