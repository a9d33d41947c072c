// Builds page/assets from page/ui: the same bytes each time. With --check it writes no files, and the exit code shows
// if the committed files are up to date.

import { createHash } from "node:crypto";
import { existsSync, readFileSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";

const here = dirname(fileURLToPath(import.meta.url));
const assets = join(here, "..", "assets");
const MOST_BYTES = 150_000;
const LICENSE = "/* Contains Preact, (c) 2015-present Jason Miller, MIT License: https://github.com/preactjs/preact */\n";

async function bundle(entry, loader) {
  const result = await build({
    absWorkingDir: here,
    entryPoints: [entry],
    bundle: true,
    minify: true,
    write: false,
    target: ["chrome103", "firefox113", "safari16.4"],
    format: loader === "css" ? undefined : "iife",
    jsx: "automatic",
    jsxImportSource: "preact",
    legalComments: "none",
    charset: "ascii",
  });
  // Within the page neither may close its own element.
  return result.outputFiles[0].text.replaceAll("</", "<\\/");
}

const script = LICENSE + (await bundle("src/main.tsx", "js"));
const style = await bundle("src/page.css", "css");
if (script.length > MOST_BYTES) {
  throw new Error(`page.js has ${script.length} bytes, at most ${MOST_BYTES} are allowed`);
}
const hash = (text) => createHash("sha256").update(text).digest("base64") + "\n";
const files = {
  "page.js": script,
  "page.css": style,
  "page.js.sha256": hash(script),
  "page.css.sha256": hash(style),
};
let different = false;
for (const [name, text] of Object.entries(files)) {
  const path = join(assets, name);
  const same = existsSync(path) && readFileSync(path, "utf8") === text;
  if (process.argv.includes("--check")) {
    if (!same) {
      console.error(`page/assets/${name} is not what page/ui builds; run npm run build in page/ui`);
      different = true;
    }
  } else if (!same) {
    writeFileSync(path, text);
  }
}
console.log(`page.js ${script.length} bytes, page.css ${style.length} bytes`);
process.exitCode = different ? 1 : 0;
