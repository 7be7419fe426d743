/** From the flags of `parscale compare` to the evaluations that are run, or read. */
import { join } from "node:path";
import { UsageError } from "../../../core/base/errors.ts";
import { isAdapter } from "../../../core/checkpoint/adapter_base.ts";
import { requireUsable } from "../../../core/eval/harness/eval_folder.ts";
import type { RowsPlan } from "../../../core/eval/harness/prepare.ts";
import { isCode, type Task } from "../../../core/eval/harness/task.ts";
import { openTokenizer } from "../../../core/tokenizer/tokenizer.ts";
import type { ValuesOf } from "../../framework/command.ts";
import type { PlanText } from "../../output/plan.ts";
import { defaultOf } from "../../framework/resolve.ts";
import { camelCase, type Flag } from "../../framework/table.ts";
import { refuseOthers } from "../../input/forms.ts";
import { findCheckpoint, nameOnHub, type NamePlan, noteContinued } from "../../input/open_model.ts";
import { prepareRows } from "../../input/published_rows.ts";
import type { Invocation } from "../../output/document.ts";
import type { Io } from "../../output/io.ts";
import { counted } from "../../output/units.ts";
import { requireCodeAllowed, rowsPlan, selectTasks } from "../eval/plan.ts";
import { readAll } from "./evaluations.ts";
import { command } from "./flags.ts";

/** Flags of the command. */
export type CompareValues = ValuesOf<typeof command>;

/** Meaning of the flags of a comparison. */
export interface ComparePlan {
  readonly values: CompareValues;
  /** Evaluations to run, each in a process of its own, the one to compare with first; none to read. */
  readonly methods: readonly Method[];
  readonly rows: RowsPlan;
}

/** A method's evaluation: the name of its folder, its model, and that as arguments of `eval`. */
export interface Method {
  readonly name: string;
  readonly model: NamePlan;
  readonly args: readonly string[];
}

/** Tells models from adapters, and checks those that are here and the folders of evaluations. */
export async function planComparison(
  given: CompareValues,
  io: Io,
  invocation: Invocation,
): Promise<ComparePlan> {
  const values = withModel(given, invocation);
  if (values.arguments.length > 0) {
    refuseOthers(invocation, "folders of evaluations", [], command.flags);
    return { values, methods: [], rows: rowsOf(values, []) };
  }
  const { out } = values;
  const chosen = await selectTasks(values.tasks);
  for (const task of chosen) {
    if (isCode(task)) requireCodeAllowed(values);
    if (task.kind === "generation") continue;
    throw new UsageError(
      `\`compare\` cannot use ${task.name}: it decodes no answers, so beams change nothing`,
      { hints: ["use a task with written answers, such as gsm8k or humaneval"] },
    );
  }
  const methods = await methodsOf(values);
  for (const model of new Set(methods.map(({ model }) => model))) {
    if (await nameOnHub(model.model)) continue;
    const { files } = await findCheckpoint(model, io);
    if (model !== methods[0]!.model || values.chat || !io.isTerminal("stdout")) continue;
    noteContinued(io, await openTokenizer(files));
  }
  for (const { name } of methods) {
    if (out !== undefined) await requireUsable(join(out, name), values);
  }
  return { values, methods, rows: rowsOf(values, chosen) };
}

function rowsOf(values: CompareValues, tasks: readonly Task[]): RowsPlan {
  return rowsPlan({ ...values, shard: undefined, excludeSelf: false }, tasks);
}

/** Takes a single path beside flags of an evaluation as the model, as other commands do. */
function withModel(values: CompareValues, { origins }: Invocation): CompareValues {
  const [path, ...others] = values.arguments;
  const evaluates = ["parscale", "beams", "tasks"].some((flag) => origins[flag] === "flag");
  if (path === undefined || others.length > 0 || values.model !== undefined || !evaluates) {
    return values;
  }
  return { ...values, model: path, arguments: [] };
}

/** Text of `--dry-run`. */
export async function describe({ values, methods, rows }: ComparePlan, io: Io): Promise<PlanText> {
  if (methods.length === 0) {
    const evaluations = await readAll(values.arguments, io);
    return { lines: [`would compare ${counted(evaluations.length, "evaluation")}`] };
  }
  if (rows.data !== undefined) await prepareRows(rows, io);
  const lines = methods.map(({ args }) => `parscale eval ${args.join(" ")}`);
  return { lines, results: { evaluations: methods.length } };
}

async function methodsOf({ beams, parscale, ...values }: CompareValues): Promise<Method[]> {
  const model = values.model!; // the table asks for it where there are no folders
  const single = ["--model", model], one = { model };
  const methods: Method[] = [
    { name: "p1", model: one, args: single },
    ...beams.map((count) => ({
      name: `beams-${count}`,
      model: one,
      args: [...single, "--num-beams", String(count)],
    })),
  ];
  for (const [i, path] of parscale.entries()) {
    // A folder of ParScale parameters is an adapter of the model; anything else stands alone.
    const overModel = await isAdapter(path);
    const name = `parscale-${i + 1}`;
    methods.push(
      overModel
        ? { name, model: { model, adapter: path }, args: [...single, "--adapter", path] }
        : { name, model: { model: path }, args: ["--model", path] },
    );
  }
  return methods;
}

/** Flags that `eval` does not take as they are given. */
const OWN = ["model", "parscale", "beams", "latency-rows", "out"];

/** Arguments of `eval` that all methods share. */
export function sharedArguments(values: CompareValues): string[] {
  const valueOf = (name: string): unknown => values[camelCase(name) as keyof CompareValues];
  const shared = Object.entries<Flag>(command.flags).filter(([name]) => !OWN.includes(name));
  return shared.flatMap(([name, flag]) => {
    const value = valueOf(name);
    if (flag.onlyWith?.every((other) => valueOf(other) === undefined)) return [];
    if (typeof value === "boolean") {
      return value === defaultOf(flag) ? [] : [`--${value ? "" : "no-"}${name}`];
    }
    if (value === undefined) return [];
    if ("list" in flag && flag.list === "repeat") {
      return (value as readonly unknown[]).flatMap((one) => [`--${name}`, String(one)]);
    }
    return Array.isArray(value) && value.length === 0 ? [] : [`--${name}`, String(value)];
  });
}
