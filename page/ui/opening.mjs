// Opens a page in a browser from file:// and prints how long that takes: `node opening.mjs PAGE [chromium | firefox]`.
// benches/page.sh makes the page. Five openings, each in a browser of its own: until the timeline is drawn, and until
// all events of the row with the most have been taken apart. The exit code is 3 when there is no such browser here.

import { existsSync, statSync } from "node:fs";
import { resolve } from "node:path";
import { pathToFileURL } from "node:url";
import * as playwright from "playwright-core";

const [file, name = "chromium"] = process.argv.slice(2);
const kind = playwright[name];
const system = { chromium: ["/usr/bin/chromium", "/usr/bin/google-chrome"], firefox: [] }[name] ?? [];
const program = [process.env[name.toUpperCase()], kind?.executablePath(), ...system].find((path) => path && existsSync(path));
if (!program) {
  console.error(`no ${name}: tests/browser.sh fetches one`);
  process.exit(3);
}
const address = pathToFileURL(resolve(file)).href;
const median = (all) => all.sort((a, b) => a - b)[all.length >> 1];
const [ready, heap] = [[], []];
for (let time = 0; time < 5; time++) {
  const browser = await kind.launch({ executablePath: program, args: name === "chromium" ? ["--no-sandbox"] : [] });
  const tab = await browser.newPage({ viewport: { width: 1280, height: 800 } });
  const begun = performance.now();
  await tab.goto(address, { waitUntil: "commit" });
  await tab.waitForSelector("body.ready", { timeout: 120_000 });
  await tab.evaluate(() => new Promise((drawn) => requestAnimationFrame(() => requestAnimationFrame(drawn))));
  ready.push(performance.now() - begun);
  heap.push(await tab.evaluate(() => performance.memory?.usedJSHeapSize ?? 0));
  await browser.close();
}
const text = (of) => of.map((value) => (value / 1000).toFixed(2)).join(" ");
console.log(`${name}: ${(statSync(file).size / 1e6).toFixed(1)} MB drawn after ${text(ready)} s, median ${(median(ready) / 1000).toFixed(2)} s` +
  (heap[0] ? `, heap of the script ${(median(heap) / 1e6).toFixed(0)} MB` : ""));
