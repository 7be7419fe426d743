/** Metrics of one choice of a request. */
import type { SchedulerEvent } from "../generate/request.ts";
import type { Metrics } from "./metrics.ts";

/** Counts and times the events of a choice, from its start on. */
export class ChoiceMetrics {
  readonly #metrics: Metrics;
  readonly #labels: { readonly model: string };
  readonly #began = performance.now();
  /** When the newest token came. */
  #lastToken: number | undefined;

  constructor(metrics: Metrics, model: string) {
    this.#metrics = metrics;
    this.#labels = { model };
  }

  /** Takes the next event. */
  hear(event: SchedulerEvent): void {
    const metrics = this.#metrics, labels = this.#labels;
    const now = performance.now();
    const seconds = (now - this.#began) / 1000;
    if (event.kind === "prefilled") {
      metrics.count("prefix_cache_hits_total", labels, event.cached);
      metrics.observe("request_queue_time_seconds", labels, seconds);
    }
    if (event.kind === "token") {
      metrics.count("generation_tokens_total", labels);
      if (event.weights) metrics.weigh(labels.model, event.weights);
      if (this.#lastToken === undefined) {
        metrics.observe("time_to_first_token_seconds", labels, seconds);
      } else {
        const gap = (now - this.#lastToken) / 1000;
        metrics.observe("inter_token_latency_seconds", labels, gap);
      }
      this.#lastToken = now;
    }
    if (event.kind === "done") {
      const finished_reason = event.reason === "length" ? "length" : "stop";
      metrics.count("request_success_total", { ...labels, finished_reason });
      metrics.observe("e2e_request_latency_seconds", labels, seconds);
    }
  }
}
