/**
 * ONNX Runtime's C API as its table of function pointers.
 *
 * The table only ever grows, so a slot number is as stable as a name.
 */
import { openOnnxRuntime } from "./library.ts";
import { quietly } from "./quiet.ts";

/** Version of the API table asked for; any version up to the library's own is served. */
const API_VERSION = 23;

/** An address owned by ONNX Runtime. */
export type Handle = Deno.PointerObject;

/** Arguments of calls. Arrays must be reachable until the call is over. */
export type Argument = Deno.PointerValue | BufferSource | number | bigint;

/** Calls return a status, null for success. */
type Call = (...args: Argument[]) => Deno.PointerValue;
type AsyncCall = (...args: Argument[]) => Promise<Deno.PointerValue>;

type Parameter = "pointer" | "buffer" | "i32" | "usize";

/** Slot and parameters of each function that returns a status; all results come through pointers. */
const FUNCTIONS = {
  CreateEnv: [3, ["i32", "buffer", "buffer"]],
  CreateSessionFromArray: [8, ["pointer", "buffer", "usize", "pointer", "buffer"]],
  CreateSessionOptions: [10, ["buffer"]],
  DisableMemPattern: [17, ["pointer"]],
  SetSessionLogSeverityLevel: [22, ["pointer", "i32"]],
  SetSessionGraphOptimizationLevel: [23, ["pointer", "i32"]],
  SetIntraOpNumThreads: [24, ["pointer", "i32"]],
  CreateTensorWithDataAsOrtValue: [49, [
    "pointer",
    "pointer",
    "usize",
    "buffer",
    "usize",
    "i32",
    "buffer",
  ]],
  CreateMemoryInfo: [68, ["buffer", "i32", "i32", "i32", "buffer"]],
  CreateCpuMemoryInfo: [69, ["i32", "i32", "buffer"]],
  AllocatorAlloc: [75, ["pointer", "usize", "buffer"]],
  AllocatorFree: [76, ["pointer", "pointer"]],
  AddSessionConfigEntry: [130, ["pointer", "buffer", "buffer"]],
  CreateAllocator: [131, ["pointer", "pointer", "buffer"]],
  RunWithBinding: [133, ["pointer", "pointer", "pointer"]],
  CreateIoBinding: [134, ["pointer", "buffer"]],
  BindInput: [136, ["pointer", "buffer", "pointer"]],
  BindOutput: [137, ["pointer", "buffer", "pointer"]],
  CreateAndRegisterAllocator: [144, ["pointer", "pointer", "pointer"]],
  AddInitializer: [150, ["pointer", "buffer", "pointer"]],
  CreateArenaCfg: [156, ["usize", "i32", "i32", "i32", "buffer"]],
  AddExternalInitializers: [210, ["pointer", "buffer", "buffer", "usize"]],
  SessionOptionsAppendExecutionProvider: [216, [
    "pointer",
    "buffer",
    "buffer",
    "buffer",
    "usize",
  ]],
  CopyTensors: [386, ["pointer", "buffer", "buffer", "pointer", "usize"]],
} as const satisfies Record<string, readonly [number, readonly Parameter[]]>;

const RELEASE = {
  Status: 93,
  MemoryInfo: 94,
  Session: 95,
  Value: 96,
  SessionOptions: 100,
  Allocator: 132,
  IoBinding: 135,
  ArenaCfg: 157,
} as const;
const GET_ERROR_MESSAGE = 2;

/** Functions that return a status. */
export type FunctionName = keyof typeof FUNCTIONS;
/** Those that are also called on another thread. */
type AsyncName = "CreateSessionFromArray" | "RunWithBinding";
/** Kinds of objects that are released. */
export type Releasable = keyof typeof RELEASE;

/** The functions by name. */
export interface ApiTable {
  readonly call: Readonly<Record<FunctionName, Call>>;
  /** The same on another thread. */
  readonly callAsync: Readonly<Record<AsyncName, AsyncCall>>;
  readonly release: Readonly<Record<Releasable, (handle: Handle) => unknown>>;
  /** Address of the text of a status that is set. */
  readonly errorMessage: (status: Handle) => Deno.PointerValue;
}

/**
 * Loads the library and binds its functions.
 * @throws {EnvironmentError} when that is not possible
 */
export function openTable(): ApiTable {
  const base = new Deno.UnsafePointerView(quietly(openOnnxRuntime));
  const getApi = new Deno.UnsafeFnPointer(base.getPointer(0)!, {
    parameters: ["u32"],
    result: "pointer",
  });
  const table = new Deno.UnsafePointerView(getApi.call(API_VERSION)!);
  const bind = (slot: number, definition: Deno.ForeignFunction) => {
    const pointer = table.getPointer<Deno.ForeignFunction>(slot * 8)!;
    const bound = new Deno.UnsafeFnPointer(pointer, definition);
    return bound.call.bind(bound) as unknown;
  };
  const bindStatus = (name: FunctionName, nonblocking: boolean) => {
    const [slot, parameters] = FUNCTIONS[name];
    return bind(slot, { parameters: [...parameters], result: "pointer", nonblocking });
  };
  const handle = ["pointer"] as const;
  const names = Object.keys(FUNCTIONS) as FunctionName[];
  return {
    call: Object.fromEntries(
      names.map((name) => [name, bindStatus(name, false)]),
    ) as ApiTable["call"],
    callAsync: {
      CreateSessionFromArray: bindStatus("CreateSessionFromArray", true) as AsyncCall,
      RunWithBinding: bindStatus("RunWithBinding", true) as AsyncCall,
    },
    release: Object.fromEntries(
      Object.entries(RELEASE).map((
        [name, slot],
      ) => [name, bind(slot, { parameters: handle, result: "void" })]),
    ) as ApiTable["release"],
    errorMessage: bind(GET_ERROR_MESSAGE, {
      parameters: handle,
      result: "pointer",
    }) as ApiTable["errorMessage"],
  };
}
