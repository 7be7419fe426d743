/** The chat page: one HTML file whose policy allows its own script and style, and this server alone. */
import { createHash } from "node:crypto";
import { createRequire } from "node:module";
import body from "./page.html" with { type: "text" };
import script from "./page.js" with { type: "text" };
import own from "./page.css" with { type: "text" };
import { PAGE_STYLE, streamStyle } from "../../analysis/stream_look.ts";

/** Colours come round again after eight streams. */
const style = PAGE_STYLE + streamStyle(8) + own;

/** Renders Markdown, and leaves HTML in it as text. */
const MARKDOWN = Deno.readTextFileSync(
  createRequire(import.meta.url).resolve("markdown-it/browser"),
);

const hash = (text: string) => `'sha256-${createHash("sha256").update(text).digest("base64")}'`;

const POLICY = [
  "default-src 'none'",
  `script-src ${hash(MARKDOWN)} ${hash(script)}`,
  `style-src ${hash(style)}`,
  "connect-src 'self'",
  "img-src data:",
  "base-uri 'none'",
  "form-action 'none'",
  "frame-ancestors 'none'",
].join("; ");

const HTML = `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<link rel="icon" href="data:,">
<title>parscale</title>
<style>${style}</style>
</head>
<body>
${body}<script>${MARKDOWN}</script>
<script>${script}</script>
</body>
</html>
`;

/** Answers `GET /`. */
export function pageResponse(): Response {
  return new Response(HTML, {
    headers: {
      "content-type": "text/html; charset=utf-8",
      "content-security-policy": POLICY,
      "referrer-policy": "no-referrer",
      "cache-control": "no-cache",
    },
  });
}
