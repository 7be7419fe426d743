/** Cache folders, with and without a home. */
import { assertEquals, assertThrows } from "@std/assert";
import { cacheFolder } from "../../../core/base/cache_folder.ts";
import { EnvironmentError } from "../../../core/base/errors.ts";
import { platformFor } from "../../../core/base/platform/mod.ts";

const from = (env: Record<string, string>) =>
  cacheFolder((name) => env[name], platformFor("linux"));

Deno.test("without a home the folder is private, and one that is not is refused", {
  ignore: Deno.uid() === null,
}, async () => {
  const temporary = await Deno.makeTempDir();
  const folder = from({ TMPDIR: temporary });
  assertEquals(folder, `${temporary}/parscale-${Deno.uid()}`);
  assertEquals(Deno.statSync(folder).mode! & 0o777, 0o700);
  Deno.chmodSync(folder, 0o777);
  assertThrows(
    () => from({ TMPDIR: temporary }),
    EnvironmentError,
    "other users can write to it",
  );
  await Deno.remove(temporary, { recursive: true });
});
