/**
 * The tables of the paper, by the preset that evaluates them.
 *
 * A score is a percentage. ARC is the mean of its two sets. The general tasks have six columns in each
 * table: SciQ is one of them for 42B tokens, MMLU for 1T. Tasks of a preset that are in none of its
 * columns are reported beside the tables.
 */
import type { TaskResult } from "../harness/results.ts";

/** A column of a table: one metric, or the mean of several columns. */
interface TableColumn {
  readonly title: string;
  /** `task.metric`, several of which are averaged. */
  readonly of: readonly string[];
}

const CODE: readonly TableColumn[] = ["1", "10"].flatMap((k) => [
  { title: `HumanEval @${k}`, of: [`humaneval.pass@${k}`] },
  { title: `HumanEval+ @${k}`, of: [`humaneval.plus_pass@${k}`] },
  { title: `MBPP @${k}`, of: [`mbpp.pass@${k}`] },
  { title: `MBPP+ @${k}`, of: [`mbpp.plus_pass@${k}`] },
]);

const ARC: TableColumn = { title: "ARC", of: ["arc_easy.acc_norm", "arc_challenge.acc_norm"] };

const COMMON_SENSE: readonly TableColumn[] = [
  { title: "WinoGrande", of: ["winogrande.acc"] },
  { title: "HellaSwag", of: ["hellaswag.acc_norm"] },
  { title: "OpenBookQA", of: ["openbookqa.acc_norm"] },
  { title: "PIQA", of: ["piqa.acc_norm"] },
  ARC,
];

const SCIQ: TableColumn = { title: "SciQ", of: ["sciq.acc_norm"] };

const MMLU: TableColumn = { title: "MMLU", of: ["mmlu.acc"] };

const MATH: readonly TableColumn[] = [
  { title: "GSM8K", of: ["gsm8k.strict_match"] },
  { title: "GSM8K-CoT", of: ["gsm8k_cot.strict_match"] },
  { title: "MATH", of: ["minerva_math.exact_match"] },
];

/** Columns of the tables a preset stands for; each table ends in the mean of its columns. */
const PAPER_TABLES: Readonly<
  Record<string, readonly { readonly name: string; readonly columns: readonly TableColumn[] }[]>
> = {
  "paper-42b": [
    { name: "General", columns: [...COMMON_SENSE, SCIQ] },
    { name: "Code", columns: CODE },
  ],
  "paper-1t": [
    { name: "General", columns: [MMLU, ...COMMON_SENSE] },
    { name: "Math", columns: MATH },
    { name: "Code", columns: CODE },
  ],
  "paper-instruct": [
    {
      name: "Instruct",
      columns: [
        { title: "IFEval", of: ["ifeval.mean"] },
        MMLU,
        { title: "GSM8K", of: ["gsm8k.strict_match"] },
      ],
    },
  ],
};

/** A table as the paper prints it, in percent; a column without its tasks is null. */
export interface PaperTable {
  readonly name: string;
  readonly columns: Readonly<Record<string, number | null>>;
}

/** The tables of a preset; none without one. */
export function paperTables(
  results: readonly Pick<TaskResult, "task" | "means">[],
  preset: string | undefined,
): PaperTable[] {
  const values = new Map<string, number>(
    results.flatMap(({ task, means }) =>
      means.map(({ metric, value }) => [`${task.name}.${metric}`, value] as const)
    ),
  );
  return (PAPER_TABLES[preset ?? ""] ?? []).map(({ name, columns }) => {
    const cells = columns.map(({ title, of }) => [title, meanOf(of.map((id) => values.get(id)))]);
    const average = meanOf(cells.map(([, value]) => value as number | null ?? undefined));
    const entries = [...cells, ["Average", average]] as [string, number | null][];
    const scaled = entries.map(([title, value]) => [title, value === null ? null : 100 * value]);
    return { name, columns: Object.fromEntries(scaled) };
  });
}

function meanOf(values: readonly (number | undefined)[]): number | null {
  if (values.some((value) => value === undefined)) return null;
  return values.reduce<number>((sum, value) => sum + value!, 0) / values.length;
}
