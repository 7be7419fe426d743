/**
 * Compiles every kernel for every architecture and checks what the compiler made of it.
 *
 * With NVRTC, else with nvcc; where there is neither, the one test is skipped. Needs no GPU and proves
 * nothing about results. No kernel may spill, earn a performance note, or, by the NVRTC that the budget was
 * made with, need more registers than `cuda_budget.json` allows.
 *
 *   PARSCALE_LONG_TESTS=1    all architectures instead of the oldest
 *   PARSCALE_CUDA_BUDGET=1   writes the budget instead of checking it, for all architectures
 */
import { assertEquals } from "@std/assert";
import { parseCompileLog } from "../unit/runtime/cuda/compile_log.ts";
import { KERNEL_HEADERS, type KernelFile } from "../../core/runtime/cuda/kernels/define.ts";
import { KERNEL_FILES, KERNELS } from "../../core/runtime/cuda/kernels/mod.ts";
import { openLibrary } from "../../core/runtime/cuda/driver/libraries.ts";
import { compileOptions, type CompileTarget, Nvrtc } from "../../core/runtime/cuda/driver/nvrtc.ts";
import { NVRTC_SYMBOLS } from "../../core/runtime/cuda/driver/symbols.ts";

const BUDGET = new URL("cuda_budget.json", import.meta.url);
const ALL = ["sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_120"];
const writing = Deno.env.get("PARSCALE_CUDA_BUDGET") === "1";
const long = writing || Deno.env.get("PARSCALE_LONG_TESTS") === "1";
const architectures = long ? ALL : ALL.slice(0, 1);

/** Registers for each of `ALL`, by `file entry defines`. */
type Budget = Record<string, number[]>;

/** Compiles some files and returns the compiler's log. */
type Compile = (files: readonly KernelFile[], target: CompileTarget) => Promise<string>;

function openNvrtc(): Nvrtc | undefined {
  try {
    return new Nvrtc(openLibrary("nvrtc", NVRTC_SYMBOLS).symbols);
  } catch {
    return undefined; // not on this machine
  }
}

const nvrtcCompiler = (nvrtc: Nvrtc): Compile => (files, target) =>
  Promise.resolve(files.map((file) => nvrtc.compile(file, target).log).join("\n"));

async function nvccCompiler(folder: string): Promise<Compile | undefined> {
  try {
    await new Deno.Command("nvcc", { args: ["--version"], stdout: "null" }).output();
  } catch {
    return undefined;
  }
  for (const [name, text] of KERNEL_HEADERS) {
    Deno.mkdirSync(`${folder}/${name.split("/")[0]}`, { recursive: true });
    Deno.writeTextFileSync(`${folder}/${name}`, text);
  }
  return async (files, target) => {
    const path = `${folder}/${crypto.randomUUID()}.cu`;
    Deno.writeTextFileSync(path, oneProgram(files));
    const defines = compileOptions(target).filter((option) => option.startsWith("-D"));
    const args = [`-arch=${target.architecture}`, "-std=c++17", "-Xptxas", "-v", `-I${folder}`];
    const { success, stderr } = await new Deno.Command("nvcc", {
      args: ["-cubin", ...args, ...defines, "-o", `${path}.cubin`, path],
    }).output();
    const log = new TextDecoder().decode(stderr);
    if (!success) {
      throw new Error(
        `Cannot compile ${files.map(({ name }) => name)} for ${target.architecture}:\n${log}`,
      );
    }
    return log;
  };
}

/** Many files as one, since a process costs more than most kernels; helpers have equal names. */
function oneProgram(files: readonly KernelFile[]): string {
  const headers = [...KERNEL_HEADERS.keys()].map((name) => `#include "${name}"\n`);
  const parts = files.map((file, i) => `namespace file${i} {\n${file.text}\n}\n`);
  return [...headers, ...parts].join("");
}

/** Files that are compiled with the same defines. */
function groups(): KernelFile[][] {
  return [...Map.groupBy(KERNEL_FILES, (file) => JSON.stringify(file.specialisations)).values()];
}

/** Registers come in units of this. */
const UNIT = 8;

/** Version of NVRTC that made the budget; those of others differ by more than a unit. */
const BUDGET_VERSION = "13.5";

/** Compilations at a time; nvcc is a process each. */
const WORKERS = 2;

async function compileAll(
  compile: Compile,
  visit: (files: readonly KernelFile[], target: CompileTarget, log: string) => void,
): Promise<void> {
  const work = groups().flatMap((files) =>
    files[0]!.specialisations.flatMap((defines) =>
      architectures.map((architecture) => ({ files, target: { architecture, defines } }))
    )
  );
  const worker = async () => {
    for (let next = work.pop(); next; next = work.pop()) {
      visit(next.files, next.target, await compile(next.files, next.target));
    }
  };
  await Promise.all(Array.from({ length: WORKERS }, worker));
}

const folder = await Deno.makeTempDir();
const nvrtc = openNvrtc();
const compile = nvrtc ? nvrtcCompiler(nvrtc) : await nvccCompiler(folder);
const hasBudget = nvrtc?.version === BUDGET_VERSION;

Deno.test({
  name: compile
    ? `kernels compile for ${architectures.join(", ")} without spills${
      hasBudget ? " and within the budget" : ""
    }`
    : "kernels are not compiled: found neither NVRTC nor nvcc",
  ignore: !compile,
  async fn() {
    if (writing) assertEquals(nvrtc?.version, BUDGET_VERSION, "set BUDGET_VERSION first");
    const budget: Budget = writing ? {} : JSON.parse(Deno.readTextFileSync(BUDGET));
    const faults: string[] = [];
    await compileAll(compile!, (files, { architecture, defines }, log) => {
      const { kernels, notes } = parseCompileLog(log);
      const flags = Object.entries(defines).map(([name, value]) => `${name}=${value}`).join(" ");
      const expected = KERNELS.filter(({ file }) => files.includes(file));
      const found = kernels.map(({ name }) => name).toSorted();
      assertEquals(
        found,
        expected.map(({ entry }) => entry).toSorted(),
        `${files.map(({ name }) => name)}`,
      );
      faults.push(...notes);
      for (const { name, registers, spills, stack } of kernels) {
        const { file } = expected.find(({ entry }) => entry === name)!;
        const key = `${file.name} ${name} ${flags}`;
        const at = `${key} on ${architecture}`;
        if (spills > 0 || stack > 0) faults.push(`${at}: ${spills} bytes spilled, stack ${stack}`);
        const index = ALL.indexOf(architecture);
        if (writing) (budget[key] ??= ALL.map(() => 0))[index] = registers;
        const allowed = budget[key]?.[index] ?? 0;
        if (hasBudget && registers > allowed + UNIT) {
          faults.push(`${at}: ${registers} registers, budget ${allowed}`);
        }
      }
    });
    assertEquals(faults, []);
    if (writing) Deno.writeTextFileSync(BUDGET, formatBudget(budget));
  },
});

globalThis.addEventListener("unload", () => Deno.removeSync(folder, { recursive: true }));

/** One line per kernel, so that a change shows as one. */
function formatBudget(budget: Budget): string {
  const lines = Object.entries(budget).toSorted(([a], [b]) => a < b ? -1 : 1)
    .map(([key, registers]) => `  ${JSON.stringify(key)}: [${registers.join(", ")}]`);
  return `{\n${lines.join(",\n")}\n}\n`;
}
