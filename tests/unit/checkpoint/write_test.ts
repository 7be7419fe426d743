/** Files that must survive a power cut. */
import { filesOf } from "../../../core/checkpoint/model_files.ts";
import { assertEquals } from "@std/assert";
import { copyCompanions, writeSafetensors } from "../../../core/checkpoint/write.ts";
import { writeJson } from "../../../core/storage/write_file.ts";
import { replaced } from "../../replaced.ts";
import { withScratch } from "./testing.ts";

Deno.test("every written file is synced once its bytes are there", () =>
  withScratch(async (folder) => {
    const { sync, syncSync } = Deno.FsFile.prototype;
    const sizes: number[] = [];
    using _ = replaced(Deno.FsFile.prototype, {
      sync() {
        sizes.push(this.statSync().size);
        return sync.call(this);
      },
      syncSync() {
        sizes.push(this.statSync().size);
        syncSync.call(this);
      },
    });
    const source = new Uint8Array(8);
    const tensor = { name: "a", dtype: "f32", shape: [2], byteLength: 8, source } as const;
    await writeSafetensors(`${folder}/model.safetensors`, [tensor]);
    writeJson(`${folder}/config.json`, { a: 1 });
    const written = ["model.safetensors", "config.json"];
    assertEquals(sizes, written.map((name) => Deno.statSync(`${folder}/${name}`).size));
  }));

Deno.test("the licence goes with a model, foreign files do not", () =>
  withScratch(async (folder) => {
    Deno.mkdirSync(`${folder}/copy`);
    for (const name of ["LICENSE", "merges.txt", "notes.txt", "README.md"]) {
      Deno.writeTextFileSync(`${folder}/${name}`, name);
    }
    assertEquals(await copyCompanions(filesOf(folder), `${folder}/copy`), [
      "merges.txt",
      "LICENSE",
    ]);
    assertEquals(Deno.readTextFileSync(`${folder}/copy/LICENSE`), "LICENSE");
  }));
