// Stands in for NCCL: checks what is passed by value and records what it is asked.
#include <stdint.h>
#include <string.h>

typedef struct { char internal[128]; } ncclUniqueId;

static int64_t calls[64][8];
static int count, result, background, aborted;

static void record(int64_t a, int64_t b, int64_t c, int64_t d, int64_t e, int64_t f, int64_t g,
                   int64_t h) {
  int64_t call[8] = {a, b, c, d, e, f, g, h};
  memcpy(calls[count++], call, sizeof call);
}

// What a test reads and sets.
int stubCalls(int64_t* out) { memcpy(out, calls, sizeof calls); return count; }
void stubSet(int nextResult, int nextBackground) {
  result = nextResult;
  background = nextBackground;
  count = 0;
}
int stubAborted(void) { return aborted; }

int ncclGetVersion(int* version) { *version = 23007; return 0; }
int ncclGetUniqueId(ncclUniqueId* id) {
  for (int i = 0; i < 128; i++) id->internal[i] = (char)(i * 7 + 3);
  return 0;
}
int ncclCommInitRank(void** comm, int ranks, ncclUniqueId id, int rank) {
  int64_t sum = 0;
  for (int i = 0; i < 128; i++) sum += (int64_t)(unsigned char)id.internal[i] * (i + 1);
  *comm = (void*)0xc0ffee;
  record(1, ranks, sum, rank, 0, 0, 0, 0);
  return result;
}
int ncclAllReduce(void* send, void* recv, size_t n, int type, int op, void* comm, void* stream) {
  record(2, (int64_t)send, (int64_t)recv, n, type, op, (int64_t)comm, (int64_t)stream);
  return result;
}
int ncclReduceScatter(void* send, void* recv, size_t n, int type, int op, void* comm, void* stream) {
  record(3, (int64_t)send, (int64_t)recv, n, type, op, (int64_t)comm, (int64_t)stream);
  return result;
}
int ncclAllGather(void* send, void* recv, size_t n, int type, void* comm, void* stream) {
  record(4, (int64_t)send, (int64_t)recv, n, type, (int64_t)comm, (int64_t)stream, 0);
  return result;
}
int ncclBroadcast(void* send, void* recv, size_t n, int type, int root, void* comm, void* stream) {
  record(5, (int64_t)send, (int64_t)recv, n, type, root, (int64_t)comm, (int64_t)stream);
  return result;
}
int ncclCommGetAsyncError(void* comm, int* error) { *error = background; return 0; }
int ncclCommAbort(void* comm) { aborted++; return 0; }
int ncclCommFinalize(void* comm) { record(6, (int64_t)comm, 0, 0, 0, 0, 0, 0); return 0; }
int ncclCommDestroy(void* comm) { record(7, (int64_t)comm, 0, 0, 0, 0, 0, 0); return 0; }
const char* ncclGetErrorString(int code) { return code == 6 ? "remote process exited" : "other"; }
const char* ncclGetLastError(void* comm) { return "connection closed by peer"; }
