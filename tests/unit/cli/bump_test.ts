/** Changes of a new version in the files that carry it. */
import { assertEquals, assertStringIncludes, assertThrows } from "@std/assert";
import { bumped } from "../../../cli/release/bump.ts";
import { pieces } from "../../../cli/release/release.ts";
import { VERSION } from "../../../core/base/version.ts";
import { DataError, UsageError } from "../../../core/base/errors.ts";

const DATE = new Date("2027-01-02T03:04:05Z");
const FILES = {
  config: '{\n  "name": "x",\n  "version": "0.1.0"\n}\n',
  changelog: "# Changelog\n\n## [Unreleased]\n\n### Added\n\n- This.\n",
  install: "tar -xf dist/parscale-0.1.0-linux-x64.tar.xz\n",
};

Deno.test("bump moves unreleased changes under the version and renames files in the docs", () => {
  assertEquals(bumped("0.2.0", "0.1.0", DATE, FILES), {
    config: '{\n  "name": "x",\n  "version": "0.2.0"\n}\n',
    changelog:
      "# Changelog\n\n## [Unreleased]\n\n## [0.2.0] - 2027-01-02\n\n### Added\n\n- This.\n",
    install: "tar -xf dist/parscale-0.2.0-linux-x64.tar.xz\n",
  });
});

Deno.test("bump refuses versions that are none or not above, and a changelog without changes", () => {
  for (const version of ["1", "v1.0.0", "1.0", "0.1.0", "0.0.9", "0.1.0-rc.1"]) {
    assertThrows(() => bumped(version, "0.1.0", DATE, FILES), UsageError, version);
  }
  for (const version of ["0.1.1", "0.2.0", "1.0.0", "0.2.0-rc.1"]) {
    assertStringIncludes(bumped(version, "0.1.0", DATE, FILES).config, version);
  }
  const config = FILES.config.replace("0.1.0", "1.0.0-rc.9");
  const next = bumped("1.0.0-rc.10", "1.0.0-rc.9", DATE, { ...FILES, config });
  assertStringIncludes(next.config, "1.0.0-rc.10");
  assertStringIncludes(
    bumped("0.1.0", "0.1.0-rc.1", DATE, {
      ...FILES,
      config: '"version": "0.1.0-rc.1"',
    }).config,
    '"0.1.0"',
  );
  const none = { ...FILES, changelog: "# Changelog\n\n## [Unreleased]\n\n## [0.1.0]\n\n- Old.\n" };
  assertThrows(() => bumped("0.2.0", "0.1.0", DATE, none), DataError, "no changes");
});

Deno.test("a release has a package, a program for every platform, and distinct names", () => {
  const files = pieces().map(({ file }) => file);
  assertEquals(new Set(files).size, files.length);
  assertEquals(files.every((file) => file.startsWith(`parscale-${VERSION}`)), true);
  assertEquals(files.filter((file) => file.endsWith(".exe")).length, 2);
});
