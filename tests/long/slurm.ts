/** A Slurm cluster of one machine in a temporary folder, for tests that run as root. */
import { environment, isInstalled } from "../cli/run.ts";
import { HANG_MS } from "../hang.ts";

const PROGRAMS = [
  "slurmctld",
  "slurmd",
  "srun",
  "sbatch",
  "scancel",
  "scontrol",
  "squeue",
  "munged",
];

/** Processors that the one machine pretends to have. */
const CPUS = 4;

/** Why there can be no cluster here; undefined where there can. */
export function whyNoSlurm(): string | undefined {
  if (Deno.build.os !== "linux" || Deno.uid() !== 0) return "needs root on Linux";
  const missing = PROGRAMS.filter((program) => !isInstalled(program));
  return missing.length === 0 ? undefined : `no ${missing.join(", ")}`;
}

/** Returns whether srun can start Open MPI: its plugin looks for the library by this name. */
export function hasPmix(): boolean {
  const libraries = `/usr/lib/${Deno.build.arch}-linux-gnu`;
  return ["/usr/lib64", "/usr/lib", libraries, `${libraries}/pmix2/lib`].some((folder) => {
    try {
      return Deno.statSync(`${folder}/libpmix.so`).isFile;
    } catch {
      return false;
    }
  });
}

function configuration(folder: string, host: string, port: number): string {
  return `ClusterName=test
SlurmctldHost=${host}(127.0.0.1)
SlurmctldPort=${port}
SlurmdPort=${port + 1}
AuthInfo=socket=${folder}/munge.socket
SlurmUser=root
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
ReturnToService=2
SlurmdParameters=config_overrides
KillWait=10
SlurmctldPidFile=${folder}/slurmctld.pid
SlurmdPidFile=${folder}/slurmd.pid
SlurmdSpoolDir=${folder}/spool
StateSaveLocation=${folder}/state
TmpFS=${folder}/tmp
SlurmctldLogFile=${folder}/slurmctld.log
SlurmdLogFile=${folder}/slurmd.log
NodeName=${host} NodeAddr=127.0.0.1 CPUs=${CPUS} RealMemory=1000 State=UNKNOWN
PartitionName=main Nodes=${host} Default=YES MaxTime=INFINITE State=UP OverSubscribe=YES
`;
}

/** The first of two free ports, below those that the system gives to others meanwhile. */
function freePort(): number {
  for (;;) {
    const port = 10_000 + Math.floor(Math.random() * 20_000);
    try {
      using _first = Deno.listen({ hostname: "127.0.0.1", port });
      using _second = Deno.listen({ hostname: "127.0.0.1", port: port + 1 });
      return port;
    } catch (error) {
      if (!(error instanceof Deno.errors.AddrInUse)) throw error;
    }
  }
}

/** A running cluster. */
export class Slurm implements AsyncDisposable {
  readonly #daemons: Deno.ChildProcess[] = [];

  private constructor(readonly folder: string) {}

  /** Environment of commands that talk to it. */
  get env(): Record<string, string> {
    return { SLURM_CONF: `${this.folder}/slurm.conf` };
  }

  /** Starts the daemons and waits until the machine takes jobs. */
  static async start(): Promise<Slurm> {
    const folder = await Deno.makeTempDir({ prefix: "parscale-slurm-" });
    await Deno.chmod(folder, 0o755);
    const slurm = new Slurm(folder);
    const host = Deno.hostname().split(".")[0]!;
    for (const name of ["state", "spool", "tmp"]) await Deno.mkdir(`${folder}/${name}`);
    await Deno.writeTextFile(`${folder}/slurm.conf`, configuration(folder, host, freePort()));
    const key = crypto.getRandomValues(new Uint8Array(128));
    await Deno.writeFile(`${folder}/munge.key`, key, { mode: 0o400 });
    const munge = ["socket", "key-file", "pid-file", "log-file", "seed-file"].map((name) =>
      `--${name}=${folder}/munge.${name.replace("-file", "")}`
    );
    slurm.#daemon("munged", ["--force", "--foreground", ...munge]);
    slurm.#daemon("slurmctld", ["-D", "-c"]);
    slurm.#daemon("slurmd", ["-D", "-N", host]);
    for (let i = 0; i < HANG_MS / 200; i++) {
      const { stdout } = await slurm.run(["sinfo", "--noheader", "--format=%T"]);
      if (stdout.trim() === "idle") return slurm;
      await new Promise((resolve) => setTimeout(resolve, 200));
    }
    await slurm[Symbol.asyncDispose]();
    throw new Error("the cluster never took jobs");
  }

  /** A command in the environment of the tests and of this cluster. */
  command(
    [program, ...args]: readonly string[],
    cwd = this.folder,
    env: Record<string, string> = {},
  ): Deno.Command {
    return new Deno.Command(program!, {
      args,
      cwd,
      env: environment({ ...this.env, ...env }),
      clearEnv: true,
      stdin: "null",
      stdout: "piped",
      stderr: "piped",
    });
  }

  /** Runs a command to its end. */
  async run(
    line: readonly string[],
    cwd?: string,
    env?: Record<string, string>,
  ): Promise<{ code: number; stdout: string; stderr: string }> {
    const { code, stdout, stderr } = await this.command(line, cwd, env).output();
    const decoder = new TextDecoder();
    return { code, stdout: decoder.decode(stdout), stderr: decoder.decode(stderr) };
  }

  /** Number of the one job that runs. */
  async job(): Promise<string> {
    const running = ["squeue", "--noheader", "--format=%A", "--states=RUNNING"];
    return (await this.run(running)).stdout.trim();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.run(["scancel", "--user=root"]);
    for (const daemon of this.#daemons.reverse()) {
      try {
        daemon.kill("SIGTERM");
      } catch {
        // it has ended
      }
      await daemon.status;
    }
    await Deno.remove(this.folder, { recursive: true });
  }

  #daemon(program: string, args: readonly string[]): void {
    const env = environment({ ...this.env, PATH: `${Deno.env.get("PATH")}:/usr/sbin:/sbin` });
    const command = new Deno.Command(program, {
      args: [...args],
      env,
      clearEnv: true,
      stdin: "null",
      stdout: "null",
      stderr: "null",
    });
    this.#daemons.push(command.spawn());
  }
}
