/** Runs `serve`: opens the port, loads the models, answers until a signal, then drains. */
import { EnvironmentError, UsageError } from "../../../core/base/errors.ts";
import { GREEDY } from "../../../core/base/sampling.ts";
import { memoryInfo } from "../../../core/base/platform/mod.ts";
import { RandomStream } from "../../../core/base/random.ts";
import { calibrate } from "../../../core/serve/calibrate.ts";
import { createHandler } from "../../../core/serve/handler.ts";
import { largestFitting, servingBytes } from "../../../core/serve/memory.ts";
import { pageResponse } from "../../../core/serve/page/page.ts";
import {
  type ServedModel,
  Service,
  type ServiceOptions,
  streamsOf,
} from "../../../core/serve/service.ts";
import { errorText, Interrupted } from "../../output/errors.ts";
import type { Io } from "../../output/io.ts";
import { type EndingSignal, onEndingSignals } from "../../output/signals.ts";
import { bytesText } from "../../output/units.ts";
import { generate } from "../../../core/generate/generate.ts";
import type { Context } from "../../framework/context.ts";
import { openServed, parseAdapters } from "../../input/named_models.ts";
import { type ModelPlan, modelPlan } from "../../input/open_model.ts";
import { type HttpServer, listen } from "./listen.ts";
import { isProbe, recordFields, recordLine } from "./log.ts";
import { apiKeyOf, limitsOf, requireKey, type ServeValues } from "./limits.ts";

export { check } from "./limits.ts";

/** Runs the command; the number is its exit code. */
export async function run(values: ServeValues, ctx: Context): Promise<number> {
  const { host, port, cors, ui, drainTimeout } = values;
  const adapters = parseAdapters(values.adapter);
  const isLoopback = requireKey(values, ctx.io), limits = limitsOf(values);
  const json = ctx.invocation.format === "json", jsonNotes = values.logFormat === "json";
  const io = ctx.io.with({ ...ctx.io.settings, jsonNotes });
  const openAll = (plan: ModelPlan) => openServed(plan, adapters, io, values.maxModelLen);
  if (ctx.isDryRun) {
    const { session, models } = await ctx.open(modelPlan(values), openAll);
    using _session = session;
    sized(models, values, limits, io);
    ctx.end();
  }
  using service = new Service(limits);
  let device = "";
  const handler = createHandler(service, {
    access: { isLoopback, origins: cors, apiKey: apiKeyOf(io) },
    device: () => device,
    page: ui ? pageResponse : undefined,
    onAnswered(record) {
      if (isProbe(record) && io.settings.verbose === 0) return;
      if (jsonNotes) io.record(recordFields(record));
      else io.note(recordLine(record));
    },
    onError: (error) => io.writeError(errorText(io, error, json || jsonNotes)),
  });
  const server = await listen({ host, port }, handler);
  try {
    const opened = await openAll(modelPlan(values));
    using session = opened.session;
    device = session.device;
    const models = sized(opened.models, values, limits, io);
    for (const model of models) await warmUp(model);
    if (limits.streams === "auto") await calibrate(models, service.byLoad, limits);
    const ended = Promise.withResolvers<EndingSignal>();
    // A signal before there is anything to finish ends the program at once, as a second one does.
    const release = onEndingSignals(ended.resolve);
    service.open(models);
    announce(server, models, io, json);
    const loop = service.run();
    const ending = Promise.race([ended.promise, loop.then(() => "SIGTERM" as const)]);
    const signal = await ending.finally(release);
    const finished = await drain(service, drainTimeout, io);
    await loop;
    await server.close();
    if (!finished) throw new Interrupted(signal);
    return 0;
  } finally {
    await server.close();
  }
}

/** Refuses `--streams` that no model has, and `auto` with only one number of streams. */
function requireStreams(models: readonly ServedModel[], { streams }: ServiceOptions): void {
  if (streams === undefined) return;
  const available = [...new Set(models.map(streamsOf))].sort((a, b) => a - b);
  if (streams === "auto" ? available.length > 1 : available.includes(streams)) return;
  const all = available.join(", ");
  throw new UsageError(
    streams === "auto"
      ? `\`--streams auto\` needs models with different numbers of streams, all have ${all}`
      : `\`--streams ${streams}\`: no model has that many, only ${all}`,
    { hints: ["pass `--adapter NAME=PATH` with other streams"] },
  );
}

/**
 * Returns models whose length fits the memory once all rows are taken. A length that was asked for stays:
 * over the memory limit it is refused; over what is free it is only warned about, since hardly ever are all
 * requests so long.
 */
function sized(
  models: readonly ServedModel[],
  { memoryLimit: limit, maxModelLen }: ServeValues,
  limits: ServiceOptions,
  io: Io,
): readonly ServedModel[] {
  requireStreams(models, limits);
  const { maxBatch, prefixCacheBytes } = limits;
  const engines = models.map(({ session }) => session.engine);
  if (limit === undefined && engines[0]!.device.traits.discreteMemory) return models;
  const { maxLength, session } = models[0]!;
  const sizes = { maxBatch, maxLength, prefixCacheBytes: prefixCacheBytes * models.length };
  const bytes = servingBytes(engines, sizes);
  const most = limit ?? memoryInfo().available;
  if (bytes <= most) return models;
  const length = largestFitting("maxLength", engines, sizes, most);
  if (maxModelLen === undefined && length > 0) {
    io.note(
      `lowering \`--max-model-len\` from ${maxLength} to ${length}, ` +
        `with which ${maxBatch} sequences fit in ${bytesText(most)}; a smaller --max-batch ` +
        "leaves room for longer ones",
    );
    return models.map((model) => ({ ...model, maxLength: length }));
  }
  const batch = largestFitting("maxBatch", engines, sizes, most);
  const fitting = [
    ...(batch > 0 ? [`\`--max-batch ${batch}\``] : []),
    ...(length > 0 ? [`\`--max-model-len ${length}\``] : []),
  ];
  const needed = `${maxBatch} sequences of ${maxLength} tokens need ${bytesText(bytes)}`;
  const hint = fitting.length > 0
    ? `pass ${fitting.join(" or ")}, the largest that fits`
    : "pass a smaller --max-batch, --max-model-len or --prefix-cache" +
      (session.matrices === "f32" ? ", or --quantize q8" : "");
  if (limit !== undefined) {
    const message = `${needed}, --memory-limit is ${bytesText(limit)}`;
    throw new EnvironmentError(message, { hints: [hint] });
  }
  io.warn(`${needed}, ${bytesText(most)} are free`, hint);
  return models;
}

/** Generates one token, which loads the weights and checks that the device works. */
async function warmUp({ session: { engine } }: ServedModel): Promise<void> {
  const request = {
    tokens: [0],
    maxTokens: 1,
    sampling: GREEDY,
    random: new RandomStream(0),
    eosTokenIds: [],
  };
  for await (const event of generate(engine, [request], { batch: 1 })) {
    if (event.kind === "failed") throw event.error;
  }
}

function announce(
  { hostname, port }: HttpServer,
  models: readonly ServedModel[],
  io: Io,
  json: boolean,
): void {
  const url = `http://${hostname.includes(":") ? `[${hostname}]` : hostname}:${port}`;
  const names = models.map(({ name }) => name);
  if (json) return io.write(`${JSON.stringify({ url, models: names })}\n`);
  io.say(`serving ${names.join(", ")} at ${url}\n`);
}

/** Lets running requests finish for some seconds; whether all did. */
async function drain(service: Service, seconds: number, io: Io): Promise<boolean> {
  service.drain();
  if (service.outstanding > 0) io.note(`finishing ${service.outstanding} choices`);
  const deadline = performance.now() + 1000 * seconds;
  while (service.outstanding > 0 && performance.now() < deadline) {
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
  const finished = service.outstanding === 0;
  service.stop();
  return finished;
}
