/** One rank of tests/interop/torchrun_test.ts: prints where it stands and where rank 0 is to be met. */
import { agreeOnId } from "../../core/collective/nccl.ts";
import { detectLaunch } from "../../core/collective/launch.ts";
import { ID_BYTES, type NcclSymbols } from "../../core/collective/nccl_library.ts";

const launch = detectLaunch((name) => Deno.env.get(name));
const library = { ncclGetUniqueId: () => 0 } as unknown as NcclSymbols;
const id = await agreeOnId(library, launch, undefined);
const meeting = Deno.env.get("NCCL_COMM_ID")!;
if (launch?.rank === 0) {
  // NCCL would listen here: the launcher's own agent must not.
  const [hostname, port] = meeting.split(":");
  Deno.listen({ hostname: hostname!, port: Number(port) }).close();
}
console.log(JSON.stringify({ ...launch, meeting, idBytes: id.length === ID_BYTES }));
