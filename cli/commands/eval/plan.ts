/** From the flags of `parscale eval` to one of its tasks: evaluate, score, list, show or fetch. */
import { join } from "node:path";
import { UsageError } from "../../../core/base/errors.ts";
import { statIfExists } from "../../../core/base/files.ts";
import { shotsOf } from "../../../core/eval/harness/documents.ts";
import type { RowsPlan } from "../../../core/eval/harness/prepare.ts";
import { isCode, type Task } from "../../../core/eval/harness/task.ts";
import { SUITES, taskOf } from "../../../core/eval/tasks/mod.ts";
import { openOwnTask } from "../../../core/eval/tasks/own.ts";
import type { ValuesOf } from "../../framework/command.ts";
import { formatFlag } from "../../framework/table.ts";
import { refuseOthers } from "../../input/forms.ts";
import { type ModelPlan, modelPlan } from "../../input/open_model.ts";
import { parseShard } from "../../input/shard.ts";
import { requireTask } from "../../input/task.ts";
import { command } from "./flags.ts";
import type { Invocation } from "../../output/document.ts";

/** Flags of the command. */
export type EvalValues = ValuesOf<typeof command>;

/** Meaning of the flags of an evaluation, or of another task of the command. */
export interface EvalPlan {
  readonly kind: "evaluate" | "score" | "show" | "fetch" | "list";
  readonly values: EvalValues;
  /** Model to ask, or to take the chat template of. */
  readonly model: ModelPlan | undefined;
  readonly rows: RowsPlan;
  readonly bounds: readonly Bound[];
}

/** Rows shown by `eval show` where no number is asked for. */
const SHOWN_ROWS = 1;

/** Flags of the rows of tasks, and of the model whose template they are shown in. */
const ROWS = [
  ...["data", "limit", "ids", "shots", "shard", "exclude-self"],
  ...["chat", "template-var", "model"],
];

/** Flags of scoring answers that are there. */
const SCORING = [
  ...["score", "tasks", "out", "overwrite", "log-format", "passing", "fail-under"],
  ...["allow-code-execution", "sandbox", "sanitize"],
];

/** @throws {UsageError} for flags that exclude each other, and unknown tasks */
export async function planEvaluation(
  values: EvalValues,
  invocation: Invocation,
): Promise<EvalPlan> {
  const [action, ...names] = values.arguments;
  const refuse = (form: string, own: readonly string[]) =>
    refuseOthers(invocation, form, own, command.flags);
  switch (action) {
    case "ls":
      refuse("`eval ls`", ["data"]);
      return planOf("list", { ...values, shots: [], failUnder: [] }, []);
    case "show":
      refuse("`eval show`", ROWS);
      return await showPlan(values, names);
    case "fetch":
      refuse("`eval fetch`", ["data", "overwrite"]);
      return planOf("fetch", { ...values, shots: [], failUnder: [] }, await tasksToFetch(names));
  }
  const { nSamples, temperature, tasks, score } = values;
  if (temperature === 0 && nSamples > 1) {
    throw new UsageError(`\`--n-samples ${nSamples}\` needs \`--temperature\` above 0`, {
      hints: ["leave out --temperature, or --n-samples"],
    });
  }
  if (score === undefined) return planOf("evaluate", values, await selectTasks(tasks));
  refuse("`--score`", [...ROWS, ...SCORING]);
  if (values.model !== undefined && !values.chat) {
    throw new UsageError("`--score` cannot be combined with `--model`", {
      hints: ["leave out --model; samples are scored as they are"],
    });
  }
  if ((await statIfExists(score))?.isDirectory) {
    throw new UsageError(`"${score}" is a folder, not a file`, {
      hints: [`did you mean ${formatFlag("score", join(score, "samples.jsonl"))}?`],
    });
  }
  return planOf("score", values, await selectTasks(tasks));
}

function planOf(kind: EvalPlan["kind"], values: EvalValues, tasks: readonly Task[]): EvalPlan {
  const { model, failUnder } = values;
  return {
    kind,
    values,
    bounds: parseBounds(failUnder, tasks),
    model: model === undefined ? undefined : modelPlan({ ...values, model }),
    rows: rowsPlan(values, tasks),
  };
}

async function showPlan(values: EvalValues, names: readonly string[]): Promise<EvalPlan> {
  if (names.length !== 1) {
    throw new UsageError(`\`eval show\` ${names.length === 0 ? "needs a" : "takes one"} task`, {
      hints: ["`parscale eval show gsm8k`; `parscale eval ls` lists the tasks"],
    });
  }
  const limit = values.limit ?? (values.ids.length > 0 ? undefined : SHOWN_ROWS);
  return planOf("show", { ...values, limit, failUnder: [] }, await selectTasks(names));
}

/** Tasks of `eval fetch TASK…`, with all that any evaluation of them needs. */
async function tasksToFetch(names: readonly string[]): Promise<readonly Task[]> {
  if (names.length === 0) {
    throw new UsageError("`eval fetch` needs at least one task", {
      hints: ["type `parscale eval fetch general math race code ifeval` for all of them"],
    });
  }
  const tasks = await selectTasks(names), own = tasks.find(({ file }) => file !== undefined);
  if (own) throw new UsageError(`"${own.file}" is a file already: there is nothing to fetch`);
  return tasks;
}

/** Flags that decide which rows are asked and how. */
type RowValues = Pick<
  EvalValues,
  "data" | "limit" | "ids" | "shots" | "shard" | "excludeSelf" | "chat"
>;

/** The rows of tasks that flags ask for. */
export function rowsPlan(values: RowValues, tasks: readonly Task[]): RowsPlan {
  const { data, limit, excludeSelf, chat } = values;
  const shots = shotsByTask(values.shots, tasks);
  return {
    tasks: tasks.map((task) => ({ task, shots: shotsOf(task, shots(task)) })),
    data,
    limit,
    ids: values.ids.length > 0 ? values.ids : undefined,
    shard: parseShard(values.shard),
    excludeSelf,
    chat,
  };
}

/** @throws {UsageError} where programs would have to be run against the user's will */
export function requireCodeAllowed(
  { allowCodeExecution }: Pick<EvalValues, "allowCodeExecution">,
): void {
  if (allowCodeExecution) return;
  throw new UsageError(
    "scoring programs runs code written by a model: pass `--allow-code-execution`",
    { hints: ["it runs in a sandbox; `parscale eval --predict-only` only answers"] },
  );
}

/** The same for the tasks of a plan, before they are answered. */
export function requireTasksAllowed(
  { values }: EvalPlan,
  prepared: readonly { readonly task: Task }[],
): void {
  if (!values.predictOnly && prepared.some(({ task }) => isCode(task))) requireCodeAllowed(values);
}

/** Tasks of names, suites and files, each once, in the order given. */
export async function selectTasks(names: readonly string[]): Promise<Task[]> {
  if (names.length === 0) {
    throw new UsageError("`eval` needs `--tasks`", { hints: ["`parscale eval ls` lists them"] });
  }
  const chosen = new Set(names.flatMap(tasksNamed)), others = Object.keys(SUITES);
  const tasks = await Array.fromAsync(
    chosen,
    async (name) => await openOwnTask(name) ?? requireTask(name, others),
  );
  const byName = Map.groupBy(tasks, ({ name }) => name);
  const twice = tasks.find(({ name, file }) => file && (byName.get(name)![1] || taskOf(name)));
  if (!twice) return tasks;
  throw new UsageError(`"${twice.file}" has the name of another task, ${twice.name}`, {
    hints: ["rename the file"],
  });
}

/** The tasks of a suite; any other name is a task's. */
function tasksNamed(name: string): readonly string[] {
  return Object.hasOwn(SUITES, name) ? SUITES[name]! : [name];
}

/** Shots asked for a task; undefined leaves them to the task. */
function shotsByTask(
  given: readonly string[],
  tasks: readonly Task[],
): (task: Task) => number | undefined {
  const known = new Set(tasks.map(({ name }) => name));
  let all: number | undefined;
  const own = new Map<string, number>();
  for (const text of given) {
    const [, name, digits] = /^(?:([^=]+)=)?(\d{1,4})$/.exec(text) ?? [];
    if (digits === undefined) {
      throw new UsageError(
        `invalid value "${text}" for \`--shots\`: must be a number, or TASK=NUMBER`,
      );
    }
    if (name === undefined) all = Number(digits);
    for (const task of name === undefined ? [] : tasksNamed(name)) {
      if (!known.has(task) && task === name) {
        const names = [...known].join(", ");
        throw new UsageError(
          `\`--shots ${text}\` names a task that is not among --tasks: ${names}`,
        );
      }
      own.set(task, Number(digits));
    }
  }
  // A number for all tasks means those that can have shots.
  return ({ name, shots }) =>
    own.get(name) ?? (all !== undefined && shots.count > 0 ? all : undefined);
}

/**
 * Temperatures of the samples of a task's rows, in their order; 0 is greedy. Without --temperature
 * several samples are for code tasks, which then have a greedy one before them.
 */
export function temperaturesOf(
  { nSamples, temperature }: Pick<EvalValues, "nSamples" | "temperature">,
): (task: Task) => readonly number[] {
  if (temperature !== undefined) return () => new Array(nSamples).fill(temperature);
  const sampled = [0, ...new Array(nSamples).fill(0.8)];
  return (task) => isCode(task) && nSamples > 1 ? sampled : [0];
}

/** A bound a score must reach. */
export interface Bound {
  readonly task: string;
  /** The headline where absent. */
  readonly metric: string | undefined;
  readonly least: number;
}

/** Reads --fail-under; every bound must belong to a task that is run. */
export function parseBounds(texts: readonly string[], tasks: readonly Task[]): Bound[] {
  return texts.map((text) => {
    const [, task, metric, value] = /^([^.=]+)(?:\.([^=]+))?=([-+\d.eE]+)$/.exec(text) ?? [];
    const least = Number(value);
    const found = tasks.find(({ name }) => name === task);
    if (task === undefined || !Number.isFinite(least)) {
      throw new UsageError(
        `invalid value "${text}" for \`--fail-under\`: must be TASK=VALUE or TASK.METRIC=VALUE`,
        { hints: ["for instance --fail-under gsm8k=0.3"] },
      );
    }
    if (!found) {
      const names = tasks.map(({ name }) => name).join(", ");
      throw new UsageError(
        `\`--fail-under ${text}\` names a task that is not among --tasks: ${names}`,
      );
    }
    if (metric !== undefined && !found.metrics.includes(metric)) {
      throw new UsageError(`\`--fail-under ${text}\` names an unknown metric of ${task}`, {
        hints: [`known: ${found.metrics.join(", ")}`],
      });
    }
    return { task, metric, least };
  });
}
