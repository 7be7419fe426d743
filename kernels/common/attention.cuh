// Sizes, masks and index arithmetic of attention.
//
// Queries, keys and values have R rows: B rows of text for each of P streams, or B alone where all
// streams share their text (layer 0); attention row r of P·B reads row r mod R. A row has T tokens
// and S slots of text after M slots of a prefix that its whole stream sees; K key heads, each with
// G query heads. "Query" i of a key head is head i mod G of token i / G, so that the G·T queries of
// a key head lie side by side for each token.
#pragma once

#include "common/types.cuh"

constexpr float LOG2E = 1.44269504f, LN2 = 0.69314718f;

// first (or null) and last [B, T]: the slots of text that a token sees.
struct Attention {
  int R, B, T, S, K, G, M;
  float scale;
  const int *first, *last;

  __device__ int queries() const { return G * T; }

  // Place of a query's head in [rows, T, K·G]
  __device__ long long head(int row, int k, int query) const {
    return ((long long)row * T + query / G) * K * G + k * G + query % G;
  }

  // Place of the first slot of a key head: of the text [R, K, S], or of the prefix [P, K, M]
  __device__ long long slots(bool text, int row, int k) const {
    return text ? ((long long)(row % R) * K + k) * S : ((long long)(row / B) * K + k) * M;
  }
};

// What gradients read: gradients of outputs, normalizers and Σ dout out of every head; keys and
// values of the text, or of the prefix.
struct Gradients {
  Attention a;
  const Element *dout, *q, *keys, *values;
  const float *normalizer, *delta;
};

// Slots or items, both ends included.
struct Range {
  int from, to;

  __device__ bool has(int slot) const { return from <= slot && slot <= to; }
};

// What a block sums for the gradients of its slots: items are tiles of queries of the attention
// rows firstRow, firstRow + rowStep, …
struct SlotTask {
  bool text;  // or prefix
  int size, firstRow, rowStep;
  Range items;
};

// Slots are those of the text where S is not 0, else those of a prefix. Items are cut into chunks,
// whose sums are added afterwards: a prefix has few slots and sums over all tokens of its stream.
// blockIdx.z counts rows of the text or streams, chunk by chunk.
__device__ inline SlotTask slotTask(const Attention& a, int rows, int chunks, int tile) {
  const bool text = a.S > 0;
  const int owners = text ? a.R : rows / a.B, owner = blockIdx.z % owners;
  const int all = (a.queries() + tile - 1) / tile * (text ? rows / a.R : a.B);
  const int size = (all + chunks - 1) / chunks, from = (int)(blockIdx.z / owners) * size;
  return {text, text ? a.S : a.M, text ? owner : owner * a.B, text ? a.R : 1,
          {from, min(all, from + size) - 1}};
}

// Slots of the text that a query sees; those of the prefix are all seen.
__device__ inline Range visible(const Attention& a, int row, int query) {
  const int at = row % a.B * a.T + query / a.G;
  return {a.first ? max(a.first[at], 0) : 0, min(a.last[at], a.S - 1)};
}

// Slots of the text that any of `count` queries from start on sees.
__device__ inline Range visibleToAny(const Attention& a, int row, int start, int count) {
  Range all = {a.S, -1};
  const int end = min(start + count, a.queries());
  for (int query = start; query < end; query += a.G - query % a.G) {
    const Range each = visible(a, row, query);
    all.from = min(all.from, each.from), all.to = max(all.to, each.to);
  }
  return all;
}
