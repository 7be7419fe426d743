/** Records of GPUs that have passed the bring-up: what they hold for. */
import { assertEquals, assertThrows } from "@std/assert";
import { EnvironmentError } from "../../../../core/base/errors.ts";
import { recordVerified, requireVerified } from "../../../../core/runtime/cuda/verified.ts";
import { environment } from "../../../replaced.ts";
import { withScratch } from "../../../scratch.ts";

Deno.test("a GPU is accepted once it has passed, with that driver, compiler and cuBLASLt only", () =>
  withScratch((cache) => {
    using _ = environment({ PARSCALE_CACHE: cache });
    const libraries = { driverVersion: 13000, nvrtcVersion: "13.0", cublasLtVersion: 130100 };
    const place = { name: "Some GPU", ...libraries };
    const refused = assertThrows(() => requireVerified(place), EnvironmentError);
    assertEquals(
      refused.message,
      "Some GPU has not been verified with this version, driver, NVRTC and cuBLASLt",
    );
    assertEquals(refused.hints, [
      "run `parscale doctor --device cuda` once, or pass `--unverified`",
    ]);
    recordVerified(place);
    requireVerified(place);
    const others = [
      ...[{ driverVersion: 13010 }, { name: "Other GPU" }],
      ...[{ nvrtcVersion: "12.8" }, { cublasLtVersion: 120804 }],
    ];
    for (const other of others) {
      assertThrows(
        () => requireVerified({ ...place, ...other }),
        EnvironmentError,
        "has not been verified",
      );
    }
    const [file] = [...Deno.readDirSync(`${cache}/cuda`)];
    const record = JSON.parse(Deno.readTextFileSync(`${cache}/cuda/${file!.name}`));
    assertEquals([record.name, record.driverVersion], ["Some GPU", 13000]);
    return Promise.resolve();
  }));
