/** Files that must survive a power cut. */
import { assertEquals } from "@std/assert";
import { writeJson, writeSafetensors } from "../../../core/checkpoint/write.ts";
import { withScratch } from "./testing.ts";

Deno.test("every written file is synced once its bytes are there", () =>
  withScratch(async (folder) => {
    const { sync } = Deno.FsFile.prototype;
    const sizes: number[] = [];
    Deno.FsFile.prototype.sync = function () {
      sizes.push(this.statSync().size);
      return sync.call(this);
    };
    const path = `${folder}/model.safetensors`;
    const source = new Uint8Array(8);
    try {
      const tensor = { name: "a", dtype: "f32", shape: [2], byteLength: 8, source } as const;
      await writeSafetensors(path, [tensor]);
      await writeJson(`${folder}/config.json`, { a: 1 });
    } finally {
      Deno.FsFile.prototype.sync = sync;
    }
    const written = ["model.safetensors", "config.json"];
    assertEquals(sizes, written.map((name) => Deno.statSync(`${folder}/${name}`).size));
  }));
