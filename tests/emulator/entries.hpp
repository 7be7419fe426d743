// What a compiled program exports; comes behind its table emulatedKernels.
#pragma once
#include "emulator/cuda.hpp"

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

// config: grid, block. Not 0 when all went well.
EXPORTED int emulatedLaunch(emulator::Machine* machine, int kernel, const unsigned* config,
                            void** parameters) {
  const emulator::Kernel& each = emulatedKernels[kernel];
  const dim3 grid(config[0], config[1], config[2]);
  const dim3 block(config[3], config[4], config[5]);
  return emulator::runGrid(machine, each.name, each.call, parameters, grid, block);
}
