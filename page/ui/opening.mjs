// Opens a page in Chromium from file:// and prints the time: `node opening.mjs PAGE`. benches/page.sh generates the
// page, and firefox.mjs does the same in Firefox. Five openings, each in a separate browser, until the timeline is
// drawn. The exit code is 3 if Chromium is not installed.

import { existsSync, statSync } from "node:fs";
import { resolve } from "node:path";
import { pathToFileURL } from "node:url";
import { chromium } from "playwright-core";

const [file] = process.argv.slice(2);
const programs = [process.env.CHROMIUM, chromium.executablePath(), "/usr/bin/chromium", "/usr/bin/google-chrome"];
const program = programs.find((path) => path && existsSync(path));
if (!program) {
  console.error("no Chromium: tests/browser.sh fetches one");
  process.exit(3);
}
const median = (all) => all.toSorted((a, b) => a - b)[all.length >> 1];
const [times, heaps] = [[], []];
for (let time = 0; time < 5; time++) {
  const browser = await chromium.launch({ executablePath: program, args: ["--no-sandbox"] });
  const tab = await browser.newPage({ viewport: { width: 1280, height: 800 } });
  await tab.goto(pathToFileURL(resolve(file)).href, { waitUntil: "commit" });
  const drawn = await tab.waitForFunction(() => performance.getEntriesByName("gpuwhy-drawn")[0]?.startTime, null, { timeout: 120_000 });
  times.push((await drawn.jsonValue()) / 1000);
  heaps.push(await tab.evaluate(() => performance.memory.usedJSHeapSize / 1e6));
  await browser.close();
}
console.log(`Chromium, ${(statSync(file).size / 1e6).toFixed(1)} MB: drawn after ${times.map((time) => time.toFixed(2)).join(" ")} s, ` +
  `median ${median(times).toFixed(2)} s, heap of the script ${median(heaps).toFixed(0)} MB`);
