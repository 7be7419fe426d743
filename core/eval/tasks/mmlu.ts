/**
 * MMLU, 57 subjects, 5 shots, accuracy: the answer is one of four letters.
 *
 *     {"question": "Find the degree for the given field extension Q(sqrt(2), sqrt(3), sqrt(18)) over
 *      Q.", "subject": "abstract_algebra", "choices": ["0", "4", "2", "6"], "answer": 1}
 *
 * Shots are the first five of the subject's development set. Subjects count by their size; so do the
 * four groups they fall into. The original tables have no header: question, four choices, letter.
 */
import { strip } from "../python/text.ts";
import { Row } from "../harness/row.ts";
import { choiceQuestion, type ChoiceTask } from "../harness/task.ts";

const LETTERS = ["A", "B", "C", "D"];

const SUBJECTS: Readonly<Record<string, string>> = {
  stem: `
    abstract_algebra anatomy astronomy college_biology college_chemistry
    college_computer_science college_mathematics college_physics computer_security
    conceptual_physics electrical_engineering elementary_mathematics high_school_biology
    high_school_chemistry high_school_computer_science high_school_mathematics
    high_school_physics high_school_statistics machine_learning`,
  other: `
    business_ethics clinical_knowledge college_medicine global_facts human_aging management
    marketing medical_genetics miscellaneous nutrition professional_accounting
    professional_medicine virology`,
  social_sciences: `
    econometrics high_school_geography high_school_government_and_politics
    high_school_macroeconomics high_school_microeconomics high_school_psychology human_sexuality
    professional_psychology public_relations security_studies sociology us_foreign_policy`,
  humanities: `
    formal_logic high_school_european_history high_school_us_history high_school_world_history
    international_law jurisprudence logical_fallacies moral_disputes moral_scenarios philosophy
    prehistory professional_law world_religions`,
};

/** The group of every subject: stem, humanities, social_sciences, other. */
export const MMLU_GROUPS: ReadonlyMap<string, string> = new Map(
  Object.entries(SUBJECTS).flatMap(([group, names]) =>
    names.trim().split(/\s+/).map((subject) => [subject, group] as const)
  ),
);

export const mmlu: ChoiceTask = {
  kind: "choice",
  name: "mmlu",
  title: "MMLU",
  version: 1,
  source: "hendrycks/test (data.tar: dev/*_dev.csv, test/*_test.csv), or cais/mmlu, all",
  folder: "mmlu",
  rows: ["test", "all/test", "test/*_test", "*_test"],
  size: { rows: 14042, pool: 285 },
  metrics: ["acc"],
  shots: { count: 5, pool: ["dev", "all/dev", "dev/*_dev", "*_dev"], order: "first" },
  describe: (subject) =>
    "The following are multiple choice questions (with answers) about " +
    `${subject.replaceAll("_", " ")}.\n\n`,
  groupOf: (row) => row.text("subject"),
  arrange: (rows) => rows.map((row) => row.has("cells") ? fromTable(row) : row),
  read(row) {
    const choices = row.texts("choices", 4);
    const listed = choices.map((choice, i) => `${LETTERS[i]}. ${choice}\n`).join("");
    const text = `${strip(row.text("question"))}\n${listed}Answer:`;
    return choiceQuestion(text, LETTERS, row.index("answer", 4));
  },
};

/** A line of the original tables, whose subject is the name of the file. */
function fromTable(row: Row): Row {
  const [question, ...rest] = row.texts("cells", 6);
  const answer = LETTERS.indexOf(rest[4]!);
  if (answer < 0) throw row.error(`has the answer "${rest[4]}", expected A, B, C or D`);
  const subject = row.text("file").replace(/_(dev|test|val)$/, "");
  return new Row({ question, subject, choices: rest.slice(0, 4), answer }, row.place);
}
