// Opens a page in Chromium from file:// and checks its functions. Prints one line for each successful check; the exit
// code is 1 if a check fails, 3 if Chromium is not installed.
//
//   node browser.mjs PAGE REPORT.json [PICTURES]
//
// Chromium: the program in CHROMIUM; else that of playwright-core, which tests/browser.sh fetches; else that of the
// system.

import { existsSync, mkdirSync, readFileSync, statSync } from "node:fs";
import { createRequire } from "node:module";
import { join, resolve } from "node:path";
import { pathToFileURL } from "node:url";
import { build } from "esbuild";
import { chromium } from "playwright-core";

const [file, reportFile, pictures] = process.argv.slice(2);
const report = JSON.parse(readFileSync(reportFile, "utf8"));
const address = pathToFileURL(resolve(file)).href;
const programs = [process.env.CHROMIUM, chromium.executablePath(), "/usr/bin/chromium", "/usr/bin/chromium-browser",
  "/usr/bin/google-chrome"];
const program = programs.find((path) => path && existsSync(path));
if (!program) {
  console.error("no Chromium: tests/browser.sh fetches one");
  process.exit(3);
}
const browser = await chromium.launch({ executablePath: program, args: ["--no-sandbox"] });
let failed = false;
const check = (what, holds, found = "") => {
  console.log(`${holds ? "ok" : "NOT OK"} ${what}${holds ? "" : ` ${found}`}`);
  failed ||= !holds;
};

/** The page's contents, read by its own reader. */
const manifest = await (async () => {
  const built = await build({ entryPoints: ["src/data.ts"], bundle: true, write: false, format: "esm" });
  const reader = await import(`data:text/javascript;base64,${Buffer.from(built.outputFiles[0].contents).toString("base64")}`);
  const text = readFileSync(file, "utf8").match(/id="gpuwhy-doc">([^<]*)</)[1];
  return JSON.parse(new TextDecoder().decode(await reader.unpack(text)));
})();

/** A tab with its requests and messages. */
async function opened(options, fragment = "") {
  const context = await browser.newContext({ viewport: { width: 1280, height: 800 }, ...options });
  const tab = await context.newPage();
  const heard = [];
  tab.on("console", (message) => heard.push(`console: ${message.text()}`));
  tab.on("pageerror", (error) => heard.push(`error: ${error.message}`));
  await context.route(/.*/, (route) => {
    const url = route.request().url();
    if (url.startsWith("file:") && url.split("#")[0] === address) return route.continue();
    heard.push(`request: ${url}`);
    return route.abort();
  });
  await tab.goto(address + fragment);
  if (options.javaScriptEnabled !== false) await tab.waitForSelector("body.ready", { timeout: 30_000 });
  return { tab, heard, close: () => context.close() };
}
async function picture(tab, name) {
  if (!pictures) return;
  mkdirSync(pictures, { recursive: true });
  await tab.screenshot({ path: join(pictures, `${name}.png`) });
}
/** A picture for the documentation: from this element on, or only of this element. */
async function part(tab, name, selector, alone) {
  if (!pictures) return;
  const path = join(pictures, `${name}.png`);
  const element = await tab.$(selector);
  if (alone) return element.screenshot({ path });
  const { y } = await element.boundingBox();
  await tab.screenshot({ path, clip: { x: 0, y: y - 2, width: 1280, height: 800 - y } });
}
/** Nanoseconds of the displayed breakdown, by words. */
const shown = (tab) =>
  tab.$$eval("#stretch tr", (rows) =>
    Object.fromEntries(rows.map((row) => [row.cells[1].textContent, Number(row.cells[2].title.replace(" ns", ""))])));

const { tab, heard, close } = await opened({});
const device = report.devices[0];
if (device) {
  const words = manifest.leaves;
  const wanted = Object.fromEntries(
    words.filter((leaf) => device.leaves[leaf.name] > 0).map((leaf) => [leaf.words, device.leaves[leaf.name]]));
  await tab.waitForSelector("#stretch table");
  const whole = await shown(tab);
  check("the breakdown of the whole run is the report's, to the nanosecond",
    JSON.stringify(Object.entries(whole).sort()) === JSON.stringify(Object.entries(wanted).sort()),
    JSON.stringify({ whole, wanted }));
  const means = await tab.$$eval("#means dt", (names) => names.map((name) => name.textContent));
  const curves = manifest.timeline.curves.filter((curve) => curve.device === device.id).map((curve) => curve.label);
  check("each row of values has its mean over the stretch", JSON.stringify(means) === JSON.stringify(curves), { means, curves });
  await picture(tab, "timeline");
  await part(tab, "readme-timeline", "h1", false);

  // Keyboard only: go to a gap, and check its text.
  await tab.focus("canvas.timeline");
  for (const key of ["w", "w", "d", "a", "s", "w"]) await tab.keyboard.press(key);
  await tab.keyboard.press("]");
  const gap = await tab.waitForSelector("#gap", { timeout: 10_000 }).catch(() => null);
  const idle = words.some((leaf) => !leaf.busy && device.leaves[leaf.name] > 0);
  check("a key leads to a gap", Boolean(gap) || !idle);
  if (gap) {
    const nanos = Number((await tab.textContent("#gap h2 small")).replace(" ns", ""));
    await tab.waitForFunction((sum) => document.querySelector("#stretch")?.textContent.includes(`Sum ${sum} ns`), nanos)
      .catch(() => {});
    const parts = await tab.$$eval("#gap tr", (rows) =>
      rows.map((row) => [row.cells[1].textContent, Number(row.cells[2].title.replace(" ns", ""))]));
    check("the parts of a gap sum to it", parts.reduce((sum, [, part]) => sum + part, 0) === nanos, parts);
    const sum = Object.values(await shown(tab)).reduce((a, b) => a + b, 0);
    check("the selection is the gap", sum === nanos, `${sum} ${nanos}`);
    const largest = parts.reduce((a, b) => (b[1] > a[1] ? b : a));
    const leaf = words.find((leaf) => leaf.words === largest[0]);
    const text = await tab.textContent("#gap");
    const seconds = device.leaves[leaf.name];
    check("a gap says how much of the run is like it", text.includes(`${leaf.words}: `) && seconds >= largest[1], text);
    check("a gap says what ended it and who launched it", /ended by.+launched by.+samples.+gain at most/s.test(text), text);
    const hash = await tab.evaluate(() => location.hash);
    check("the address holds the spot", /v=\d+-\d+/.test(hash) && /s=\d+-\d+/.test(hash), hash);
    const again = await opened({}, hash);
    await again.tab.waitForSelector("#stretch table");
    const same = Object.values(await shown(again.tab)).reduce((a, b) => a + b, 0);
    check("a link opens the same spot", same === nanos, `${same} ${nanos}`);
    await again.close();
    await picture(tab, "gap");
  }
  await tab.keyboard.press("/");
  check("a slash goes to the search", await tab.evaluate(() => document.activeElement?.id === "search"));
  const kernel = device.kernels[0]?.name;
  if (kernel) {
    await tab.keyboard.type(kernel.slice(0, 24));
    await tab.keyboard.press("Enter");
    await tab.waitForFunction(() => /n=\d+/.test(location.hash), null, { timeout: 10_000 }).catch(() => {});
    check("a kernel is found by its name", /n=\d+/.test(await tab.evaluate(() => location.hash)));
  }
  for (const name of await tab.$$eval("[role=tab]", (tabs) => tabs.map((each) => each.id))) {
    await tab.click(`#${name}`);
    await tab.waitForTimeout(60);
    if (name === "tab-host") await tab.waitForFunction(() => !/^…/.test(document.querySelector(".tabpanel").textContent));
    const text = await tab.textContent(".tabpanel");
    check(`the view ${name.slice(4)} is not empty`, text.length > 20, text);
    await picture(tab, name);
    if (name === "tab-limits" && device.compute_limits) {
      const limits = device.compute_limits.step_ns ?? device.compute_limits.steady_ns;
      const all = Object.values(limits).reduce((sum, nanos) => sum + nanos, 0);
      const told = await tab.$$eval("#limits td[title]", (cells) => cells.map((cell) => Number(cell.title.replace(" ns", ""))));
      check("the limits of computation sum to it", told.at(-1) === all && told.slice(0, -1).reduce((a, b) => a + b, 0) === all, told);
    }
    const worlds = name === "tab-whatif" ? await tab.$$("#replay .buttons button:not(.step)") : [];
    if (worlds.length > 1) {
      const before = await tab.textContent("#replay");
      await worlds[1].click();
      await tab.waitForFunction(() => /w=\d+/.test(location.hash), null, { timeout: 5_000 }).catch(() => {});
      const after = await tab.textContent("#replay");
      check("the switch tells what a step becomes", after !== before && /becomes .+ less/.test(after), after);
      await tab.waitForTimeout(900);
      await picture(tab, "world");
      await part(tab, "readme-whatif", "#replay", true);
      await worlds[0].click();
    }
  }
  const axe = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
  // The page's own policy allows no other script; the test runs in a separate JavaScript world.
  const found = await tab.evaluate(`(() => { const module = undefined; ${axe}; return axe.run(); })()`);
  check("axe finds nothing", found.violations.length === 0,
    JSON.stringify(found.violations.map((rule) => [rule.id, rule.nodes.slice(0, 3).map((node) => node.html.slice(0, 120))])));
}
check("the console is silent and nothing is requested", heard.length === 0, heard);
const policy = await tab.getAttribute("meta[http-equiv=Content-Security-Policy]", "content");
check("the policy allows no network", policy.startsWith("default-src 'none'") && !policy.includes("connect-src"));
await close();

for (const [name, options] of Object.entries({
  dark: { colorScheme: "dark" }, phone: { viewport: { width: 390, height: 844 } },
  calm: { reducedMotion: "reduce", forcedColors: "active" },
})) {
  const other = await opened(options);
  await other.tab.waitForTimeout(150);
  const wide = await other.tab.evaluate(() => document.documentElement.scrollWidth - window.innerWidth);
  check(`${name}: nothing is wider than the window`, wide <= 0, wide);
  check(`${name}: silent`, other.heard.length === 0, other.heard);
  await picture(other.tab, name);
  await other.close();
}

const off = await opened({ javaScriptEnabled: false });
check("without scripts the verdict is there", (await off.tab.innerText("h1")).length > 10);
check("without scripts the answer is there", await off.tab.isVisible("#answer"));
await picture(off.tab, "static");
await off.close();

const paper = await opened({});
const pdf = pictures ? join(pictures, "page.pdf") : undefined;
const printed = await paper.tab.pdf({ path: pdf });
check("it prints", (pdf ? statSync(pdf).size : printed.length) > 10_000);
await paper.tab.emulateMedia({ media: "print" });
check("paper has the static answer", (await paper.tab.isVisible("#answer")) && !(await paper.tab.isVisible("#app")));
await paper.close();

// As in a notebook: no origin, no storage.
const context = await browser.newContext();
const notebook = await context.newPage();
const said = [];
notebook.on("console", (message) => said.push(message.text()));
await notebook.setContent("<iframe sandbox='allow-scripts' width=1200 height=800></iframe>");
await notebook.$eval("iframe", (frame, text) => (frame.srcdoc = text), readFileSync(file, "utf8"));
const frame = await (await notebook.waitForSelector("iframe")).contentFrame();
const ready = await frame.waitForSelector("body.ready", { timeout: 30_000 }).catch(() => null);
check("it runs in a sandbox", Boolean(ready), said);
await context.close();

await browser.close();
process.exitCode = failed ? 1 : 0;
