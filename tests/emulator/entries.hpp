// What a compiled program exports; comes behind its table emulatedKernels.
#pragma once
#include "emulator/cuda.hpp"

#define EXPORTED extern "C" __attribute__((visibility("default")))

// The number of a kernel, negative where there is none of this name.
EXPORTED int emulatedFind(const char* name) {
  int at = 0;
  for (const emulator::Kernel& each : emulatedKernels) {
    if (strcmp(each.name, name) == 0) return at;
    at++;
  }
  return -1;
}

// Bytes of a parameter, negative for an address; 0 behind the last.
EXPORTED int emulatedParameter(int kernel, int i) {
  const emulator::Kernel& each = emulatedKernels[kernel];
  return i < each.count ? each.sizes[i] : 0;
}

EXPORTED int emulatedMaxThreads(int kernel) { return emulatedKernels[kernel].maxThreads; }

// geometry: grid, block, bytes of dynamic shared memory, whether it may start early. Not 0 when all
// went well.
EXPORTED int emulatedLaunch(emulator::Machine* machine, int kernel, const unsigned* geometry,
                            void** parameters) {
  const emulator::Kernel& each = emulatedKernels[kernel];
  const dim3 grid(geometry[0], geometry[1], geometry[2]);
  const dim3 block(geometry[3], geometry[4], geometry[5]);
  return emulator::runGrid(machine, each.name, each.call, parameters, grid, block, geometry[6],
                           geometry[7] != 0);
}
