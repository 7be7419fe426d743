/** Counters, gauges and histograms in the text format of Prometheus. */
import type { SchedulerEvent } from "../generate/request.ts";

type Labels = Readonly<Record<string, string>>;

/** Observations of one metric with the same labels. */
interface Histogram {
  readonly labels: Labels;
  /** Observations up to each bound, and above the last. */
  readonly counts: Float64Array;
  sum: number;
}

const PREFIX = "parscale_";

/** Seconds; from one decode step to a long answer. */
const SECONDS = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300];

const HISTOGRAMS = {
  time_to_first_token_seconds: "Time from the request to its first token.",
  inter_token_latency_seconds: "Time between two tokens of a choice.",
  e2e_request_latency_seconds: "Time from the request to its last token.",
  request_queue_time_seconds: "Time from the request to its first prefill chunk.",
} as const;

const COUNTERS = {
  prefix_cache_queries_total: "Prompt tokens looked up in the prefix cache.",
  prefix_cache_hits_total: "Prompt tokens found in the prefix cache.",
  prompt_tokens_total: "Prompt tokens read.",
  generation_tokens_total: "Tokens generated.",
  spec_decode_num_draft_tokens_total: "Tokens drafted by prompt lookup.",
  spec_decode_num_accepted_tokens_total: "Drafted tokens that were kept.",
  request_success_total: "Choices that ended, by finish reason.",
  streams_total: "Choices begun, by their number of streams.",
  request_failure_total: "Requests that failed, by status code.",
} as const;

const GAUGES = {
  num_requests_running: "Choices being prefilled or decoded.",
  num_requests_waiting: "Choices in the queue.",
  kv_cache_usage_perc: "Share of the planned KV cache rows in use, 0 to 1.",
  auto_streams: "Streams that `auto` would give to a request now.",
  stream_weight_mean:
    "Mean aggregation weight of a stream over tokens whose weights were asked for.",
} as const;

/** All metrics of a server. */
export class Metrics {
  /** By metric, then label text. */
  readonly #values = mapsFor<number>({ ...GAUGES, ...COUNTERS });
  readonly #histograms = mapsFor<Histogram>(HISTOGRAMS);
  readonly #weights = new Map<string, { count: number; sums: Float64Array }>();

  /** Adds to a counter. */
  count(name: keyof typeof COUNTERS, labels: Labels, by = 1): void {
    const values = this.#values.get(name)!, key = textOf(labels);
    values.set(key, (values.get(key) ?? 0) + by);
  }

  /** Sets a gauge. */
  set(name: keyof typeof GAUGES, labels: Labels, value: number): void {
    this.#values.get(name)!.set(textOf(labels), value);
  }

  /** Adds a duration to a histogram. */
  observe(name: keyof typeof HISTOGRAMS, labels: Labels, seconds: number): void {
    const known = this.#histograms.get(name)!.getOrInsertComputed(
      textOf(labels),
      () => ({ labels, counts: new Float64Array(SECONDS.length + 1), sum: 0 }),
    );
    const bucket = SECONDS.findIndex((bound) => seconds <= bound);
    known.counts[bucket < 0 ? SECONDS.length : bucket]!++;
    known.sum += seconds;
  }

  /** Adds the weights of one token to the means. */
  weigh(model: string, weights: ArrayLike<number>): void {
    const known = this.#weights.get(model) ?? { count: 0, sums: new Float64Array(weights.length) };
    this.#weights.set(model, known);
    known.count++;
    for (let p = 0; p < weights.length; p++) {
      known.sums[p]! += weights[p]!;
      const labels = { model, stream: String(p + 1) };
      this.set("stream_weight_mean", labels, known.sums[p]! / known.count);
    }
  }

  /** The document of `/metrics`. */
  text(): string {
    const linesOf = (name: string) =>
      this.#values.get(name)!.entries().map(([labels, value]) =>
        `${PREFIX}${name}${labels} ${value}\n`
      );
    const histogramsOf = (name: string) =>
      this.#histograms.get(name)!.values().map((one) => histogramText(name, one));
    return sectionText("gauge", GAUGES, linesOf) + sectionText("counter", COUNTERS, linesOf) +
      sectionText("histogram", HISTOGRAMS, histogramsOf);
  }
}

type Table = Readonly<Record<string, string>>;

function mapsFor<V>(table: Table): ReadonlyMap<string, Map<string, V>> {
  return new Map(Object.keys(table).map((name) => [name, new Map()]));
}

/** The metrics of a table, each under its help. */
function sectionText(type: string, table: Table, linesOf: (name: string) => Iterable<string>) {
  return Object.entries(table).map(([name, help]) => {
    const head = `# HELP ${PREFIX}${name} ${help}\n# TYPE ${PREFIX}${name} ${type}\n`;
    return head + [...linesOf(name)].join("");
  }).join("");
}

function histogramText(name: string, { labels, counts, sum }: Histogram): string {
  let total = 0;
  const lines = [...SECONDS.map(String), "+Inf"].map((le, i) => {
    total += counts[i]!;
    return `${PREFIX}${name}_bucket${textOf({ ...labels, le })} ${total}\n`;
  });
  const tail = textOf(labels);
  lines.push(`${PREFIX}${name}_sum${tail} ${sum}\n`, `${PREFIX}${name}_count${tail} ${total}\n`);
  return lines.join("");
}

function textOf(labels: Labels): string {
  const pairs = Object.entries(labels).map(([name, value]) => {
    const escaped = value.replaceAll("\\", "\\\\").replaceAll('"', '\\"').replaceAll("\n", "\\n");
    return `${name}="${escaped}"`;
  });
  return `{${pairs.join(",")}}`;
}

/** Counts and times the events of a choice, from its start on. */
export class ChoiceMetrics {
  readonly #labels: { readonly model: string };
  readonly #began = performance.now();
  /** When the newest token came. */
  #lastToken: number | undefined;

  constructor(private readonly metrics: Metrics, model: string) {
    this.#labels = { model };
  }

  /** Takes the next event. */
  take(event: SchedulerEvent): void {
    const metrics = this.metrics, labels = this.#labels;
    const now = performance.now();
    const seconds = (now - this.#began) / 1000;
    if (event.kind === "prefilled") {
      metrics.count("prefix_cache_hits_total", labels, event.cached);
      metrics.observe("request_queue_time_seconds", labels, seconds);
    }
    if (event.kind === "token") {
      metrics.count("generation_tokens_total", labels);
      const { tokens, isKept } = event.draft ?? { tokens: 0, isKept: false };
      metrics.count("spec_decode_num_draft_tokens_total", labels, tokens);
      metrics.count("spec_decode_num_accepted_tokens_total", labels, Number(isKept));
      if (event.weights) metrics.weigh(labels.model, event.weights);
      const isFirst = this.#lastToken === undefined;
      const name = isFirst ? "time_to_first_token_seconds" : "inter_token_latency_seconds";
      metrics.observe(name, labels, (now - (this.#lastToken ?? this.#began)) / 1000);
      this.#lastToken = now;
    }
    if (event.kind === "done") {
      const finished_reason = event.reason === "length" ? "length" : "stop";
      metrics.count("request_success_total", { ...labels, finished_reason });
      metrics.observe("e2e_request_latency_seconds", labels, seconds);
    }
  }
}
