/**
 * Sources of the rows of every benchmark: pinned commits, files and hashes.
 *
 * Fetched files are given to tasks by this table and not by patterns of names. A file without a hash is
 * known by its commit.
 */

/** A file of a benchmark. */
export interface PublishedFile {
  /** Path in the repository, or name in the release. */
  readonly path: string;
  readonly bytes?: number;
  readonly sha256?: string;
}

/** A dataset of the hub at a commit, or a release on GitHub. */
export interface PublishedSource {
  /** `owner/name`. */
  readonly repository: string;
  /** Commit of a dataset, tag of a release. */
  readonly revision: string;
  /** Address of the release's files; absent for datasets of the hub. */
  readonly release?: string;
}

/** Data on which a task is evaluated. */
export interface PublishedData {
  readonly source: PublishedSource;
  readonly licence: string;
  /** Files of the evaluated rows, in the order of the rows. */
  readonly rows: readonly PublishedFile[];
  /** Files shots are drawn from; empty where there are none to draw, or the rows serve. */
  readonly pool: readonly PublishedFile[];
  /** Folder below `--data` where the file goes, for tasks whose own folder is none. */
  readonly folder?: string;
}

/** An entry of the table below. */
interface Entry extends Omit<PublishedData, "rows" | "pool"> {
  /**
   * A file a line: name, SHA-256 and bytes, the last two as far as they are pinned. A name without an
   * ending is that of a Parquet table with one part.
   */
  readonly rows: string;
  readonly pool?: string;
}

function filesOf(lines = ""): PublishedFile[] {
  return lines.split("\n").filter((line) => line !== "").map((line) => {
    const [name, sha256, bytes] = line.split(" ");
    return {
      path: name!.includes(".") ? name! : `${name}-00000-of-00001.parquet`,
      ...(sha256 === undefined ? {} : { sha256 }),
      ...(bytes === undefined ? {} : { bytes: Number(bytes) }),
    };
  });
}

const dataset = (repository: string, revision: string): PublishedSource => ({
  repository,
  revision,
});

const release = (repository: string, revision: string): PublishedSource => ({
  repository,
  revision,
  release: `https://github.com/${repository}/releases/download/${revision}`,
});

const ARC = {
  source: dataset("allenai/ai2_arc", "210d026faf9955653af8916fad021475a3f00453"),
  licence: "CC-BY-SA-4.0",
};

const GSM8K = {
  source: dataset("openai/gsm8k", "740312add88f781978c0658806c59bc2815b9866"),
  licence: "MIT",
  rows: "main/test ee7b8da9e381df27b9e3f7758a159ab2bdaa4dbaa910546cbbc47e0cb44e4f59",
};

const MATH_SUBJECTS = [
  "algebra",
  "counting_and_probability",
  "geometry",
  "intermediate_algebra",
  "number_theory",
  "prealgebra",
  "precalculus",
];

const TABLE: Readonly<Record<string, Entry>> = {
  arc_easy: {
    ...ARC,
    rows: "ARC-Easy/test 4160597d618ae851c7eb04e281574f3f654776216ac6b6641588d64527b47177",
    pool: "ARC-Easy/train b315db8a4be597dc7daa50a4e70d48dd7c990c32085629e6ccd8c926beaa80b5 330598",
  },
  arc_challenge: {
    ...ARC,
    rows:
      "ARC-Challenge/test 62f03257e737aed263f55c6abf87c7bb0028a44a6bdd2a26eb1279eb42c1d1e9 203808",
    pool:
      "ARC-Challenge/train e488c1587ffdcfc8443f916c53488a95cd471c5790e0746c6bfe4cecf20962cb 189909",
  },
  hellaswag: {
    source: dataset("Rowan/hellaswag", "218ec52e09a7e7462a5400043bb9a69a41d06b76"),
    licence: "MIT upstream",
    rows:
      "data/validation 899813071e1e95efafec90f856e1987d2150fa4d020fc005df6962c259f660cd 6315951",
    pool: "data/train cacb12587faa63d7f723a72d61d12bfa94b140446f5a6a0a2e1c6906ab88bf02 24365524",
  },
  winogrande: {
    source: dataset("allenai/winogrande", "01e74176c63542e6b0bcb004dcdea22d94fb67b5"),
    licence: "CC-BY upstream",
    rows: "winogrande_xl/validation",
    pool: "winogrande_xl/train",
  },
  openbookqa: {
    source: dataset("allenai/openbookqa", "388097ea7776314e93a529163e0fea805b8a6454"),
    licence: "unknown",
    rows: "main/test cd5483e366daa230c1c87bbdc512d8b7229f14f6dd04d19fc8b1a3855aaaa8a3",
    pool: "main/train 98148f8a54e62eb862346a75192d5fb824d6cbb68f2f59aecd793d39ecb5cd8b",
  },
  piqa: {
    source: dataset("baber/piqa", "142f6d7367fd9877f0fb3b5734ea6a545f54cdd1"),
    licence: "unknown",
    rows:
      "piqa_validation.parquet 2b17ee1215b1ceb2ddabf4c90a05c5a8b833bef9d207960f57d111c43a2080f3",
    pool:
      "piqa_train.parquet 3114602b31fa724309a6c493cc86368c4eab7ab6e79e285056fd5ce3b60ddf02 2638413",
  },
  sciq: {
    source: dataset("allenai/sciq", "2c94ad3e1aafab77146f384e23536f97a4849815"),
    licence: "CC-BY-NC-3.0",
    rows: "data/test 3a719356a29b127fc54ef3c7f51a034db4bd105d5717215e8c85d2aa58d60667",
    pool: "data/train 19644360954006d06e9ad3df07bddb34f8535c081b831d48f604603c713ac167",
  },
  mmlu: {
    source: dataset("cais/mmlu", "c30699e8356da336a370243923dbaf21066bb9fe"),
    licence: "MIT",
    rows: "all/test 74a41822ce7d3def56e1682f958469c04642a5336a5ce912fa375fdb90fb25d7 3504718",
    pool: "all/dev",
  },
  race: {
    source: dataset("EleutherAI/race", "e30efe648089df42c548e93faa9c5f1816e2c44f"),
    licence: "research use",
    rows: "race_high_test.jsonl e0ff122cd99f1802cec824b824d576436b4c19c313744c7e1fe3f60c6b17f9d2",
  },
  gsm8k: {
    ...GSM8K,
    pool: "main/train ea82612ea9582142387730c793eb67d3b12849002bc0b7fa6f8efafa7351419d",
  },
  gsm8k_cot: GSM8K,
  minerva_math: {
    source: dataset("EleutherAI/hendrycks_math", "21a5633873b6a120296cce3e2df9d5550074f4a3"),
    licence: "MIT",
    rows: MATH_SUBJECTS.map((subject) => `${subject}/test`).join("\n"),
  },
  ifeval: {
    source: dataset("google/IFEval", "966cd89545d6b6acfd7638bc708b98261ca58e84"),
    licence: "Apache-2.0",
    rows:
      "ifeval_input_data.jsonl 6a85310ca8ce15eff755aa08a3a4ff931c7e273e7515ebb3c492ea85fd8288f2 207111",
  },
  humaneval: {
    source: release("evalplus/humanevalplus_release", "v0.1.10"),
    licence: "Apache-2.0",
    rows:
      "HumanEvalPlus.jsonl.gz 272720b90ac375502c8ed23cd791c2a93dfb22a911641a494da74a426c09f101 925932",
    folder: "humaneval_plus",
  },
  mbpp: {
    source: release("evalplus/mbppplus_release", "v0.2.0"),
    licence: "Apache-2.0",
    rows:
      "MbppPlus.jsonl.gz af43697e8791c4c149bdfd6b489d8b5412507551ac20e28a439f650b8225db63 336032",
    folder: "mbpp_plus",
  },
};

/** Published data by the name of the task. */
export const PUBLISHED: Readonly<Record<string, PublishedData>> = Object.fromEntries(
  Object.entries(TABLE).map(([task, { rows, pool, ...entry }]) => [
    task,
    { ...entry, rows: filesOf(rows), pool: filesOf(pool) },
  ]),
);
