/** Small changes of the product, each with the tests that must fail under it. */

/** One change: `from` occurs once in the file. */
export interface Mutation {
  readonly name: string;
  readonly file: string;
  readonly from: string;
  readonly to: string;
  readonly tests: readonly string[];
}

/**
 * A file and the tests below `tests` that see its changes, then a change a line: name, text, replacement.
 * Line feeds are written as `\n`.
 */
const LIST = String.raw`
core/generate/scheduler.ts by unit/generate/free_test.ts
  the cache of a prefill group that failed is never freed: error };\n      group[Symbol.dispose](); → error };

core/generate/scheduler.ts by device/generate/scheduler_test.ts
  sequences begin that do not fit into memory: this.#mostAtOnce() - this.running → this.options.batch - this.running

core/eval/harness/predict.ts by device/generate/context_test.ts
  all windows of a text are read at once: encoder.windows(first!).map((window) => [window]) → [encoder.windows(first!)]

cli/commands/generate/run.ts by cli/generate_io_test.ts
  rows of an earlier run count in the rate: answered = rows.resumed → answered = 0

core/generate/batch_size.ts by unit/generate/score_test.ts
  logits of a text count as those of a choice: selected: batch * tokens → selected: 32

core/generate/batch_size.ts by device/generate/scheduler_test.ts
  a cache that grows is counted once: totalBytes + sections.state → totalBytes

core/runtime/onnxruntime/session/executable.ts by long/memory_test.ts
  a program keeps its last caches: new WeakRef(tensor) → { deref: () => tensor } as unknown as WeakRef<OnnxValue>

core/eval/sandbox/pool.ts by unit/eval/sandbox_test.ts
  a closed sandbox starts processes: !this.#closed && this.#children → this.#children

core/generate/prefix_cache.ts by unit/generate/prefix_cache_test.ts
  first in, first out:     this.#entries.add(entry);\n    target →     target
  a whole prompt counts as shared: tokens.length - 1; → tokens.length;

core/serve/service.ts by unit/serve/service_test.ts
  slots of a client that left stay taken: this.service.release(this.left); →
  choices of a client that left continue: this.service.cancel(index); →
  a scheduler continues after a failure of the engine: hosted.scheduler = this.#schedulerOf(hosted.model); →
  a slow step has no debt: hosted.debtMs = performance.now() - began; →

core/serve/streams_by_load.ts by unit/serve/streams_by_load_test.ts
  the fewest streams that keep the targets: toSorted((a, b) => b - a);\n    return → toSorted((a, b) => a - b);\n    return
  sequences with other streams take no time:       roundMs += this.stepMs(other, Math.min(others, this.options.maxBatch));\n →
  a lull counts at once: Math.max(ARRIVAL_WEIGHT, 1 - Math.exp(-gapMs / MEMORY_MS)) → 1
  a load is never forgotten: Math.max(ARRIVAL_WEIGHT, 1 - Math.exp(-gapMs / MEMORY_MS)) → ARRIVAL_WEIGHT
  prompts of others take no time: Math.max(0.01, 1 - ownPrefillMs / this.#gapMs) → 1
  unused streams keep their old times: ms * this.#slowness / slowness → ms
  slower steps hold no more sequences: const ITERATIONS = 16 → const ITERATIONS = 1

core/serve/documents.ts by unit/serve/documents_test.ts
  usage counts a prompt once per choice: sum([...prompts.keys()].map(({ tokens }) => tokens.length)) → sum(choices.map(({ prompt }) => prompt.tokens.length))

core/serve/body.ts by unit/serve/handler_test.ts
  chunked bodies have no limit: (length += part.length) > MAX_BODY → false

core/train/trainable.ts by unit/train/trainable_test.ts
  weight decay on the biases of streams:  && !name.endsWith("bias") →
  weight decay on norms: shape.length > 1 &&  →
  static weights train nothing:  || name !== "model.aggregate_layer.2.bias" →  || true

core/data/batches.ts by unit/data/batches_test.ts
  shares of a mixture computed one row late: this.#row + 1 → this.#row
  a cursor forgets the rows of a source: this.#taken[index] = place.rows →
  a cursor of other data is taken: found !== fingerprint) → false)

core/hub/download.ts by unit/hub/download_test.ts
  a content of the wrong size counts as downloaded: (await statIfExists(blob))?.size === file.size → (await statIfExists(blob)) !== undefined

core/hub/blob.ts by unit/hub/download_test.ts
  hashes are not compared: found === undefined || found === fetching.file.oid → true
  a range that begins elsewhere is taken: status === 206 && headers → status !== 206 || headers

core/model/rope_frequencies.ts by unit/model/rope_frequencies_test.ts
  YaRN clamps one pair too early: : last, D - 1) → : last, D - 2)
  YaRN interpolates fast pairs: fround(1 - ramp) → fround(ramp)
  Llama 3 divides short wavelengths: originalContext / high) return frequency → originalContext / high) return frequency / factor

core/checkpoint/safetensors.ts by unit/checkpoint/safetensors_test.ts
  bytes behind the last tensor: end !== fileSize → end > fileSize
  gaps between tensors: offset !== end → offset < end
  tensors that overlap: offset !== end → offset > end
  bytes that do not fit the shape: byteLength !== expected → byteLength < expected
  U8 takes two bytes: 16: "I16 → 16: "U8 I16

core/checkpoint/write.ts by unit/checkpoint/write_test.ts
  written files are not synced:     await file.sync();\n →

core/folder/folder.ts by unit/folder/folder_test.ts
  a failed swap leaves no folder: if (moved) await rename(replaced, path); →

core/tokenizer/word_splitter.ts by unit/tokenizer/word_splitter_test.ts
  'rE is not a contraction: text.charCodeAt(at + 1) | bit → text.charCodeAt(at + 1)
  capitals begin no contraction: text.charCodeAt(at) | bit → text.charCodeAt(at)
  one digit more in a word: count = 1; count < digits → count = 0; count < digits

core/tokenizer/added_tokens.ts by unit/tokenizer/added_tokens_test.ts
  the shorter of two tokens wins: b.length - a.length → a.length - b.length
  blanks on the left stay: if (token.lstrip) → if (false)

core/tokenizer/nfc.ts by unit/tokenizer/nfc_test.ts
  long runs of marks are left to the runtime: LONG_RUN.test(text) ? sortMarks(text) : text → text

core/base/python_text.ts by unit/eval/python_text_test.ts
  blanks at the end by a pattern:   const set = new Set(chars);\n  const isStripped →   if (chars === undefined) return text.replace(/\s+$/, "");\n  const set = new Set(chars);\n  const isStripped

core/eval/grading/ifeval/format.ts by unit/eval/grading/ifeval_test.ts
  titles by a pattern: return response.split( → return response.match(/<<[^\r\n]+>>/g) ?? response.split(
  bullets behind many blank lines by a pattern: response.replace(MANY_BLANK_LINES,  → response.replace(/^$/,

core/graph/derivatives.ts by device/ops/gradients_test.ts
  at a tie of max each gets all: dy.div(ones.sum(axis)) → dy
  the derivative of a quotient: [da, da.mul(y).mul(-1)] → [da, da.mul(y)]
  the derivative of a sigmoid: sub(y)))) → add(y))))

core/hub/client.ts by unit/hub/client_test.ts
  a redirect from https to http:  || isDowngrade) → )
  the token goes wherever the hub redirects: url.origin === new URL(this.access.endpoint).origin &&\n         →

cli/output/journal.ts by unit/cli/journal_test.ts
  a torn last line stays: this.#file.truncateSync(this.#length); →
  rows of another input count as done: entry.input === hashOf(input) → true
  other flags are resumed: other.length === 0 → true

core/analysis/fit.ts by unit/analysis/fit_golden_test.ts
  rows of one P are refitted: countDistinct(drawn, "p") >= FEWEST_STREAMS[law.kind] → true
  256 different P: Uint32Array.from(observations → Uint8Array.from(observations

core/eval/sandbox/python/compare.py by unit/eval/grading/compare_test.ts
  lists of other lengths are close: _length(actual) == _length(wanted) and → True and

cli/input/kept_inputs.ts by unit/cli/kept_inputs_test.ts
  two outputs of one file: places.lastIndexOf(places[i]!) > i → false
  an output in a model: !isShared && foldersOf(output).has(own) → false
  links to weights: replaced.has(key) → false

cli/output/row_writer.ts by unit/cli/row_writer_test.ts
  exit code 0 when a row failed: this.#failed > 0 ? 1 : 0 → 0
  rows as they finish: this.#waiting.set(at, rows) → this.#waiting.set(this.#written, rows)

cli/output/exit_codes.ts by unit/docs_test.ts unit/cli/main_test.ts
  another exit code for bad data: code: 3, → code: 4,

core/eval/harness/score.ts by unit/eval/score_test.ts
  samples of other prompts are scored: sample.request !== document.hash → false
  an interruption while the sandbox opens is lost: being opened.\n    watch.interruption.throwIfAborted(); → being opened.

core/eval/harness/paired.ts by unit/eval/results_test.ts
  population standard error: squares / (n - 1) / n → squares / n / n
  the mean divides by one less: (sum, x) => sum + x, 0) / n → (sum, x) => sum + x, 0) / (n - 1)

core/eval/harness/results.ts by unit/eval/results_test.ts
  per byte, not per code point: codePointLength(options[i]!.ending) → new TextEncoder().encode(options[i]!.ending).length
  ties go to the last choice: value > values[best]! ? → value >= values[best]! ?

core/eval/harness/documents.ts by unit/eval/requests_test.ts
  no spare shot is drawn: count + Number(spare) → count
  rows that are passed over draw nothing:     const shots = draw(row, group);\n    if (!chosen.has(id)) continue; →     if (!chosen.has(id)) continue;\n    const shots = draw(row, group);

core/eval/tasks/code.ts by unit/eval/requests_test.ts
  chat models stop as completions do:     stops,\n    answerStart →     answerStart

core/eval/harness/sampler.ts by unit/eval/requests_test.ts
  shots in another order: pool[at] = pool[size - i - 1]! → pool[at] = pool[0]!
  another seed: SHOT_SEED = 1234 → SHOT_SEED = 1235

core/eval/sandbox/job.ts by unit/eval/sandbox_test.ts
  a job may take ten minutes: Math.min(60, → Math.min(600,
  the reference's time gives no allowance: 2 * total(reference) → 0

core/eval/sandbox/protocol.ts by unit/eval/sandbox_test.ts
  answers without the token count: if (start < 0) return undefined; →
  long lines are kept: length + part.length <= longest → true

core/train/optimizer.ts by unit/train/optimizer_test.ts
  no bias correction of m: rate / (1 - beta1 ** step) → rate
  no bias correction of v: 1 / (1 - beta2 ** step) → 1
  steps counted from 0: 1 - beta2 ** step → 1 - beta2 ** (step + 1)
  clipping by the sum: Math.sqrt(await this.#squaredNorm()) / tokens → Math.sqrt(await this.#squaredNorm())
  no clipping: Math.min(1, clip / (gradNorm + 1e-6)) → 1
  decay of all groups: group.decayed ? 1 - rate * weightDecay : 1 → 1 - rate * weightDecay
  one rate for all: rates[group.rate] → rates.backbone

core/ops/adamw.ts by unit/train/optimizer_test.ts
  epsilon inside the root: constant(epsilon).div(root) → constant(epsilon)
  the second moment of unclipped gradients: scale.mul(scale).mul(1 - beta2) → scale.mul(1 - beta2)

core/train/schedule.ts by unit/train/schedule_test.ts
  warm-up from 0: return reached / warmup → return (reached - 1) / warmup
  cosine over the whole run: cosine: steps - warmup → cosine: steps
  a half cosine: Math.cos(Math.PI * t) → Math.cos(Math.PI * t / 2)
  WSD without a decay: kind === "wsd" ? 1 - t → kind === "wsd" ? 1

core/train/loop.ts by unit/train/loop_test.ts
  the loss is a sum: const loss = sum / predicted → const loss = sum
  the smoothed loss follows at once: EMA = 0.95 → EMA = 0.05
  the end is not saved: if (state.step > saved) await hooks.save(state); →
  validation divides by one token more: sums[0]! / sums[1]! → sums[0]! / (sums[1]! + 1)

core/train/training_memory.ts by cli/train_saving_test.ts
  memory decides nothing: memory.total <= limit → true
  a run always takes one row at a time: memory.total <= limit → false

core/train/run_folder.ts by unit/train/run_folder_test.ts
  metrics of later steps stay: Number(row.step) <= step; → Number(row.step) > 0;
  the oldest checkpoints are kept: step)).slice(0, -keep) → step)).slice(keep)
  checkpoints sorted by name: sort((a, b) => step(a) - step(b)) → sort().reverse()

core/data/batch.ts by unit/data/batches_test.ts
  targets are the tokens themselves: stored[i + 1] ?? -1 → stored[i] ?? -1
  positions run on in the next document: this.positions[first + i] = i → this.positions[first + i] = slot + i
  the target behind a cut is lost: start + length + 1) → start + length)

core/data/pack.ts by unit/data/pack_test.ts unit/data/batches_test.ts
  worst fit: room[slot]! < room[best]!) → room[slot]! > room[best]!)
  a row is overfilled by one: room[slot]! >= length → room[slot]! + 1 >= length
  single tokens are planned: if (length > 1) add → if (length > 0) add
  a cut document loses its last piece: cut ? length - 1 : 1 → cut ? length - tokens : 1

core/data/row_source.ts by unit/data/batches_test.ts
  every epoch in the order of the first: this.#planned = this.#plan(this.epoch) → this.#planned = this.#plan(0)
  a cursor of a row goes one too far: this.row = row; → this.row = row + 1;

core/base/sampling.ts by unit/base/sampling_test.ts
  top-k keeps one more: Math.min(ids.length, topK) → Math.min(ids.length, topK + 1)
  top-p leaves out the token that reaches it: ids.length = last + 1 → ids.length = Math.max(1, last)
  top-p of the whole distribution behind top-k: topK > 0 ? sum(ids.length, (i) => ids[i]!) : everything → sum(logits.length, (id) => id)
  min-p is strict: weight(id) >= minP) → weight(id) > minP)
  min-p in absolute terms: weight(id) >= minP) → weight(id) >= minP * ids.length)
  equal logits rank by the highest id: || a - b);\n  if (topK → || b - a);\n  if (topK
  greedy takes the last of equal maxima: if (x > logits[best]!) best = i → if (x >= logits[best]!) best = i
  temperature multiplies: / options.temperature) → * options.temperature)
  the whole vocabulary is sorted: const floor = topK > 0 → const floor = topK >= 0 ? -Infinity : topK > 0

core/generate/logit_rules.ts by unit/generate/logit_rules_test.ts
  the repetition penalty divides negative scores: score < 0 ? score * repetitionPenalty → score < 0 ? score / repetitionPenalty
  repeated tokens count once: frequencyPenalty * count + presencePenalty → frequencyPenalty + presencePenalty
  presence by count: frequencyPenalty * count + presencePenalty → (frequencyPenalty + presencePenalty) * count
  the prompt counts for presence: of seen.answer) { → of [...seen.all].map((token) => [token, 1] as const)) {
  biases replace logits: changed[token]! += bias → changed[token] = bias
  a mask forbids one token more in each word: 32 * word + 32) → 32 * word + 31)

core/generate/beam_search.ts by device/generate/decoding_golden_test.ts
  no length penalty: sum / tokens.length ** lengthPenalty → sum
  end tokens below the beams finish too: if (rank < beams) finish → finish
  never stops as early as false: lengthPenalty > 0 ? maxTokens : length → lengthPenalty > 0 ? length : length

core/session/stream.ts by unit/session/stream_test.ts
  stop strings inside one token alone: this.text.length - this.#longest + 1) → this.text.length)
  the first stop string of the list wins: Math.min(...found) → found[0]!
  one character too few is held back: word.length - 1, text.length) → word.length - 2, text.length)

core/ops/attention.ts by unit/model/ops_test.ts
  a token sees the next one: slots.lessEqual(last.reshape(shape)) → slots.lessEqual(last.add(last.graph.constant(1, "i32")).reshape(shape))
  documents of a row see each other: return first ? first.reshape → return !first ? before : false ? first.reshape
  scores without their scale: scale: this.D ** -0.5 → scale: 1

core/ops/rope.ts by unit/model/ops_test.ts
  a rotation the other way: low.mul(c).sub(high.mul(s)) → low.mul(c).add(high.mul(s))
  neither table is scaled: scale === 1 ? table : table.mul(scale) → table

core/ops/softmax.ts by unit/model/ops_test.ts
  softmax overflows: x.sub(x.max(-1)).exp() → x.exp()

core/ops/token_logprobs.ts by unit/model/ops_test.ts
  log-sum without the largest logit: total.log().add(largest) → total.log()

core/ops/aggregate.ts by unit/model/ops_test.ts
  weights without smoothing: smoothing === 0 → true
  weights that do not sum to 1: smoothing / scores.shape.at(-1)! → smoothing

core/quant/codes.ts by unit/quant/codes_test.ts
  columns behind the last keep old values: values.fill(0) → values.fill(0, 0, 0)
  codes of a later part are those of the first: at.values, end, format → at.values, at.values + 4 * width, format
  a last part has as many rows as others: Math.min(step, rows - row) → step

core/quant/stored.ts by unit/checkpoint/gguf_test.ts
  q and k of Llama as GGUF has them: inHead % (D / 2) * 2 + Math.floor(inHead / (D / 2)) → inHead

core/quant/stored.ts by unit/session/open_test.ts
  minima are lost where codes are quantized anew: own.offsets === format.offsets → true

core/quant/blocks.ts by unit/quant/blocks_test.ts
  codes of Q6_K have their zero elsewhere: q + 0x60606060 → q + 0x80808080
  minima of Q4_K are lost: middle * d * scale - dmin * min → middle * d * scale

core/checkpoint/open.ts by unit/checkpoint/gguf_test.ts
  a few matrices in codes round activations: coded.length * 2 < matrices.length → false
  an embedding table in codes becomes f32: table && !table.offsets → false

core/checkpoint/open.ts by unit/session/open_test.ts
  rows of a table are read without their minima: table && !table.offsets → table

core/runtime/onnxruntime/session/weight_memory.ts by long/memory_test.ts
  codes stay beside what was packed of them: packsCodes() ? this.#packed → false ? this.#packed

core/runtime/onnxruntime/session/weight_memory.ts by unit/session/open_test.ts
  codes of a tied table are made twice: , table = this.#tables.get(key) → , table = this.#tables.get("")

core/session/open.ts by unit/session/open_test.ts
  weights that fit are warned of: bytes > freeMemory → bytes > 0

core/base/dtype.ts by unit/checkpoint/open_test.ts
  bf16 rounds ties up: 0x7fff + ((word >>> 16) & 1) → 0x8000

core/serve/tool_calls.ts by unit/serve/tool_calls_test.ts
  brackets in texts count: else if (this.#inString) → else if (false)
  a mark that is cut is sent at once: length + before.length → before.length
  a cut call is lost: this.format.trigger + held → this.format.trigger

core/grammar/schema_fields.ts by unit/grammar/schema_test.ts
  keywords that no grammar enforces pass: UNSUPPORTED.has(keyword) → false
  an exclusive bound is allowed: float[0]! > 0 ? 1n : -1n → 0n

core/grammar/schema.ts by unit/generate/json_schema_test.ts
  any depth is taken: jsonDepth(text) > MAX_DEPTH → false

core/grammar/automaton.ts by unit/grammar/schema_test.ts
  a loop is read once too often: count < loop.max → count <= loop.max

core/grammar/engine.ts by unit/grammar/engine_test.ts
  questions whose client has gone are asked: pending!.signal?.aborted → false
  the first to come is the first to be asked: size === least → true
`;

/** All changes, by file. */
export const MUTATIONS: readonly Mutation[] = LIST.trim().split("\n\n").flatMap((block) => {
  const [head, ...lines] = block.split("\n");
  const [file, tests] = head!.split(" by ") as [string, string];
  return lines.map((line) => {
    const [, name, from, to] = /^ {2}(.+?): (.+) →(?: (.*))?$/.exec(line)!.map((text) =>
      text?.replaceAll("\\n", "\n") ?? ""
    ) as [string, string, string, string];
    return { name, file, from, to, tests: tests.split(" ").map((path) => `tests/${path}`) };
  });
});
