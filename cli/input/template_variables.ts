/** `--template-var`: variables of a chat template. */
import { parseExactJson } from "../../core/base/exact_json.ts";
import { UsageError } from "../../core/base/errors.ts";
import { jsonValue } from "../../core/base/files.ts";

/**
 * Variables of the flag, as an option of opening a model; none where there are none.
 * @throws {UsageError} for a missing name or value, or a name given twice
 */
export function templateVariables(
  texts: readonly string[] = [],
): { readonly templateVariables?: Readonly<Record<string, unknown>> } {
  if (texts.length === 0) return {};
  const pairs = texts.map((text) => {
    const [, name, value] = /^([A-Za-z_]\w*)=([^]*)$/.exec(text) ?? [];
    if (name !== undefined && value !== undefined) return [name, value] as const;
    throw new UsageError(`\`--template-var ${text}\` needs a name and a value`, {
      hints: ["write `--template-var NAME=VALUE`"],
    });
  });
  const names = pairs.map(([name]) => name);
  const twice = names.find((name, i) => names.indexOf(name) < i);
  if (twice !== undefined) throw new UsageError(`\`--template-var\` names "${twice}" twice`);
  // As one text, in which numbers keep their digits.
  const fields = pairs.map(([name, value]) =>
    `"${name}": ${jsonValue(value) === undefined ? JSON.stringify(value) : value}`
  );
  const read = parseExactJson(`{${fields.join(", ")}}`);
  return { templateVariables: read as Readonly<Record<string, unknown>> };
}
