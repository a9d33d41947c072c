// Opens a page in Chromium from file:// and checks its functions. Prints one line for each successful check; the exit
// code is 1 if a check fails, 3 if Chromium is not installed.
//
//   node browser.mjs PAGE REPORT.json [PICTURES]
//
// Chromium: the program in CHROMIUM; else that of playwright-core, which tests/browser.sh fetches; else that of the
// system.

import { existsSync, mkdirSync, readFileSync } from "node:fs";
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
const reader = await (async () => {
  const contents = 'export * from "./src/data"; export * from "./src/rows";';
  const built = await build({ stdin: { contents, resolveDir: "." }, bundle: true, write: false, format: "esm" });
  return import(`data:text/javascript;base64,${Buffer.from(built.outputFiles[0].contents).toString("base64")}`);
})();
const read = async (name) => {
  const text = readFileSync(file, "utf8").match(new RegExp(`id="gpuwhy-${name}">([^<]*)<`))[1];
  return JSON.parse(new TextDecoder().decode(await reader.unpack(text)));
};
const [manifest, names] = [await read("doc"), await read("names")];

/** Waits for what follows the elements only in the next frame: the address, the timeline's picture and keys. */
const settled = (tab) => tab.evaluate(() => new Promise((done) => requestAnimationFrame(() => setTimeout(done))));

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
  if (options.javaScriptEnabled !== false) {
    await tab.waitForSelector("body.ready");
    await settled(tab);
  }
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
  tab.$$eval("#interval tr", (rows) =>
    Object.fromEntries(rows.map((row) => [row.cells[1].firstChild.textContent, Number(row.cells[2].title.replace(" ns", ""))])));

/** No group of rows differs from the default. */
const OPEN = { folded: [], hidden: [] };

/** The part of an element in the window and under nothing else: null without one, else its size in pixels. */
const seen = (tab, selector) => tab.evaluate((selector) => {
  const element = document.querySelector(selector);
  if (!element) return null;
  const box = element.getBoundingClientRect();
  const [left, top] = [Math.max(0, box.left), Math.max(0, box.top)];
  const [right, bottom] = [Math.min(innerWidth, box.right), Math.min(innerHeight, box.bottom)];
  if (right - left < 1 || bottom - top < 1) return null;
  const over = document.elementFromPoint((left + right) / 2, top + Math.min(6, (bottom - top) / 2));
  return element.contains(over) || over?.contains(element) ? { width: right - left, height: bottom - top } : null;
}, selector);
const place = (tab) => tab.evaluate(() => [scrollX, scrollY, document.querySelector("canvas.timeline").getBoundingClientRect().toJSON()]);

/** Clicks, hovers and folds at this size of the window, and checks what is on the screen. */
async function clicked(name, viewport) {
  const { tab, heard, close } = await opened({ viewport, hasTouch: false });
  await tab.focus("canvas.timeline");
  await tab.keyboard.press("]");
  const { rows } = reader.layout(new reader.Page(manifest, names), manifest.timeline.curves, OPEN);
  const row = rows.find((row) => row.kind === "device");
  if (idle) {
    await tab.waitForSelector("#gap");
    await tab.keyboard.press("Escape");
    await tab.waitForFunction(() => !document.querySelector("#gap")).catch(() => {});
    check(`${name}: Escape closes the answer`, !(await tab.$("#gap")));
    await tab.evaluate(() => scrollTo(0, document.querySelector("canvas.timeline").getBoundingClientRect().top + scrollY - 300));
    const box = await tab.locator("canvas.timeline").boundingBox();
    const left = reader.leftOf(box.width);
    const at = { x: box.x + left + (box.width - left) / 2, y: box.y + row.top + row.height / 2 };
    const before = await place(tab);
    await tab.mouse.move(at.x, at.y);
    await tab.waitForSelector(".tip");
    check(`${name}: the pointer has a text in the window`, Boolean(await tab.$eval(".tip", (tip) => {
      const { left, top, right, bottom } = tip.getBoundingClientRect();
      return left >= 0 && top >= 0 && right <= innerWidth && bottom <= innerHeight;
    })));
    check(`${name}: which moves nothing`, JSON.stringify(await place(tab)) === JSON.stringify(before));
    await tab.mouse.down();
    await tab.mouse.up();
    await tab.waitForSelector("#gap");
    await settled(tab);
    check(`${name}: a click's answer is on the screen`, Boolean(await seen(tab, "#gap h2")) && (await seen(tab, "#gap"))?.height > 120);
    check(`${name}: a click moves nothing`, JSON.stringify(await place(tab)) === JSON.stringify(before));
    const top = await tab.evaluate(({ x, y }) => document.elementFromPoint(x, y).className, at);
    check(`${name}: the place of the click is not hidden`, top === "timeline", top);
    await picture(tab, `click-${name}`);
    await tab.mouse.move(at.x - 20, at.y);
    await tab.mouse.down();
    await tab.mouse.move(at.x + 30, at.y, { steps: 3 });
    await tab.mouse.up();
    await tab.waitForFunction(() => !document.querySelector("#gap"));
    check(`${name}: the breakdown of a selection is on the screen`, Boolean(await seen(tab, "#interval h2")));
    await tab.click(".dock > .close");
    await tab.waitForFunction(() => !location.hash.includes("s="));
  }
  const high = () => tab.$eval("canvas.timeline", (canvas) => canvas.clientHeight);
  const unfolded = await high();
  await tab.focus(".fold");
  await tab.keyboard.press("Enter");
  await tab.waitForFunction((high) => document.querySelector("canvas.timeline").clientHeight < high, unfolded);
  const kept = (letter) => tab.waitForFunction((letter) => new RegExp(`${letter}=g\\d`).test(location.hash), letter)
    .then(() => true, () => false);
  check(`${name}: a key folds rows`, await kept("f"));
  await tab.keyboard.press("Enter");
  await tab.waitForFunction((high) => document.querySelector("canvas.timeline").clientHeight === high, unfolded);
  await tab.click(".menu summary");
  await tab.click(".menu input");
  await tab.waitForFunction((high) => document.querySelector("canvas.timeline").clientHeight < high, unfolded);
  await tab.keyboard.press("Escape");
  check(`${name}: Escape closes the list of rows`, !(await tab.$(".menu[open]")));
  check(`${name}: rows are hidden`, await kept("h"));
  check(`${name}: clicks are silent`, heard.length === 0, heard);
  await close();
}

/** Checks the gaps like the shown one: those of the report's row with the words of its largest part. */
async function alike(tab, what) {
  const leaf = await tab.$eval("#gap tr", (row) => row.cells[1].firstChild.textContent);
  const note = await tab.$eval("#gap tr small", (small) => small.textContent).catch(() => "");
  const words = ({ kind, name }) => ({
    call: `in or after ${name}`, kernel: `before ${name}`, copy_from_host: "before a copy from the host",
    other_transfer: "before a copy or memset", event: `for an event after ${name}`,
    host: `the launching thread was ${manifest.activities.find(([known]) => known === name)?.[1]}`, none: "",
  })[kind];
  const row = device.gaps.find((row) => manifest.leaves.find(({ name }) => name === row.leaf).words === leaf && words(row) === note);
  const told = (await tab.textContent("#gap")).match(/all like it([\d ]+) gaps, .+? in all after start-up, the longest /)?.[1];
  check(`the gaps like it are those of the same wait: ${what}`, told?.replaceAll(" ", "") === row?.count.toString(), JSON.stringify({ told, row }));
}

/** Clicks the links of the evidence, and checks that each leads to what its sentence means. */
async function evidence() {
  const { tab, heard, close } = await opened({});
  const sentences = await tab.$$eval("header .evidence li", (all) => all.map((one) => [one.firstChild.textContent, Boolean(one.querySelector(".goto"))]));
  const links = await tab.$$("header .evidence .goto");
  for (const [sentence] of sentences.filter(([, linked]) => linked)) {
    const [what] = sentence.split(/,| takes | ran /);
    await links.shift().click();
    await tab.waitForFunction(() => document.querySelector("#gap, #event") || /No /.test(document.querySelector(".status").textContent));
    if (/^Kernel /.test(sentence)) {
      const title = await tab.textContent("#event h2").catch(() => "");
      const [head] = what.replace("Kernel ", "").split("~");
      check(`the link leads to it: ${what}`, title.includes(head), title);
    } else if (await tab.$("#gap")) {
      const text = (await tab.textContent("#gap")).toLowerCase();
      const said = manifest.activities.map(([, words]) => words.toLowerCase()).filter((words) => sentence.toLowerCase().includes(words));
      check(`the link leads to such a wait: ${what}`, said.some((words) => text.includes(`launching thread was ${words}`)), text);
      await alike(tab, what);
    }
    await tab.keyboard.press("Escape");
    await tab.waitForFunction(() => !document.querySelector("#gap, #event"));
  }
  const launching = sentences.filter(([sentence, linked]) => linked && sentence.startsWith("The CPU launches"));
  check("lines of launches have no link to a wait", launching.length === 0, launching);
  check("evidence: silent", heard.length === 0, heard);
  await close();
}

/** The picture of the README: the answer, and the longest wait that it is about. */
async function answered() {
  const { tab, close } = await opened({});
  const link = await tab.$("text=show the longest");
  if (link) {
    await link.click();
    await tab.waitForSelector("#gap");
    await tab.waitForTimeout(900);
    await tab.evaluate(() => scrollTo(0, 0));
    await part(tab, "readme-timeline", "h1", false);
  }
  await close();
}

/** Checks the search, whose field has the focus. */
async function searched(tab, device) {
  await settled(tab);
  const before = await tab.evaluate(() => location.hash);
  const { name, count } = device.kernels[0];
  await tab.keyboard.type(name.slice(0, 24));
  await settled(tab);
  check("letters in the search are no keys", (await tab.evaluate(() => location.hash)) === before);
  const list = await tab.$$eval("#found [role=option]", (all) => all.map((one) => one.textContent));
  check("the search has a list, kernels first", /^kernel/.test(list[0]) && Boolean(await seen(tab, "#found [role=option]")), list);
  const shows = async (wanted) => {
    const told = () => tab.textContent(".place");
    await tab.waitForFunction((wanted) => document.querySelector(".place").textContent.startsWith(wanted), wanted).catch(() => {});
    check(`the search is at ${wanted}`, (await told()).startsWith(wanted), await told());
  };
  await tab.keyboard.press("Enter");
  await tab.waitForFunction(() => /n=\d+/.test(location.hash)).catch(() => {});
  await tab.waitForFunction(() => / of /.test(document.querySelector(".place").textContent)).catch(() => {});
  const [at, all] = (await tab.textContent(".place")).replaceAll(/(\d) (?=\d)/g, "$1").match(/\d+/g).map(Number);
  const grouped = (number) => number.toString().replace(/\B(?=(\d{3})+$)/g, " ");
  check("a kernel is found by its name, all of its launches", all === count, `${all} ${count}`);
  await tab.keyboard.press("Enter");
  await shows(`${grouped((at % all) + 1)} of`);
  await tab.keyboard.press("Shift+Enter");
  await shows(`${grouped(at)} of`);
  await tab.waitForSelector("#event h2").catch(() => {});
  check("its answer is on the screen", Boolean(await seen(tab, "#event h2")));
  const status = () => tab.textContent(".status");
  check("its name is the status", (await status()) === name.slice(0, 120), await status());
  const words = name.split(/[\s_]+/).filter((word) => word.length > 2).toReversed();
  await tab.fill("#search", words.join(" "));
  check("another text has no place yet", (await tab.textContent(".place")) === "" && !(await status()).includes(name.slice(0, 120)));
  const names = await tab.$$eval("#found [role=option] span", (all) => all.map((one) => one.textContent));
  check("words in any order find the name", names.includes(name), names);
  await tab.keyboard.press("Enter");
  await tab.waitForFunction(() => / of /.test(document.querySelector(".place").textContent)).catch(() => {});
  await tab.click("text=whole run");
  check("the status is that of the view", / s to .+ s$/.test(await status()), await status());
  await tab.focus("#search");
  await tab.keyboard.press("Escape");
  check("Escape leaves the search", await tab.evaluate(() => document.activeElement.className === "timeline"));
}

/** Checks what is shown of the work of CUDA graphs: clicks on an operation and its module, the table, the flame graph. */
async function graphs() {
  const name = (index) => names.names[index][0];
  const largest = names.origins.reduce((a, b) => (b.total_ns > a.total_ns ? b : a));
  const { tab, heard, close } = await opened({});
  await tab.fill("#search", name(largest.label));
  await tab.press("#search", "Enter");
  await tab.waitForFunction(() => /s=\d+-\d+/.test(location.hash) && /n=\d+/.test(location.hash));
  const hash = await tab.evaluate(() => location.hash);
  const [view, selected] = ["v", "s"].map((key) => hash.match(new RegExp(`${key}=(\\d+)-(\\d+)`)).slice(1).map(Number));
  // The search has an answer of its own.
  await tab.waitForSelector("#event");
  await tab.press("#search", "Escape");
  await tab.keyboard.press("Escape");
  await tab.waitForFunction(() => !document.querySelector("#event"));
  const { rows } = reader.layout(new reader.Page(manifest, names), manifest.timeline.curves, OPEN);
  const box = await tab.locator("canvas.timeline").boundingBox();
  const left = reader.leftOf(box.width);
  const x = left + (((selected[0] + selected[1]) / 2 - view[0]) / (view[1] - view[0])) * (box.width - left);
  const on = (kind) => {
    const row = rows.find((row) => row.kind === kind && row.lane?.nodes);
    return { position: { x, y: row.top + row.height / 2 } };
  };
  await tab.click("canvas.timeline", on("stream"));
  await tab.waitForSelector("#event");
  const facts = () => tab.$$eval("#event dt", (all) => all.map((one) => [one.textContent, one.nextSibling.textContent]));
  const told = await facts();
  const fact = (wanted) => told.find(([known]) => known === wanted)?.[1];
  const alike = names.origins.filter((origin) => origin.label === largest.label);
  const origin = alike.find((origin) => name(origin.at) === fact("captured at"));
  check("an operation of a graph says its line", Boolean(origin), JSON.stringify(told));
  const wanted = [origin?.module ? name(origin.module) : undefined, origin?.operators ? name(origin.operators) : undefined];
  check("and its module and operators", wanted[0] === fact("module") && wanted[1] === fact("operators"), JSON.stringify(told));
  await tab.locator("canvas.timeline").scrollIntoViewIfNeeded();
  await picture(tab, "node");
  await tab.hover("canvas.timeline", on("modules"));
  await tab.waitForFunction(() => document.querySelector(".tip")?.textContent.includes("modules of stream"));
  const tip = await tab.textContent(".tip");
  check("the row of modules has its module", tip.startsWith(name(largest.label)), tip);
  await tab.click("canvas.timeline", on("modules"));
  await tab.waitForFunction((label) => document.querySelector("#event h2")?.textContent === label, name(largest.label));
  const lines = (await facts()).filter(([known]) => known === "captured at").map(([, line]) => line);
  check("a block has its lines", lines.length > 0 && lines.every((line) => alike.some(({ at }) => line.startsWith(name(at)))), lines);
  // By keyboard: a click may miss a tab that the answer just moved.
  await tab.press("#tab-graphs", "Enter");
  await tab.waitForSelector(".flame");
  const cells = await tab.$$eval(".tabpanel tbody tr", (rows) => rows.map((row) => row.cells[0].textContent));
  check("the table has the modules of the report", JSON.stringify(cells) === JSON.stringify(manifest.graph_work.map(([part]) => part).slice(0, cells.length)), cells);
  const { with_place, without_place, unknown } = report.graph_origins;
  const all = with_place.total_ns + without_place.total_ns + unknown.total_ns;
  const sum = (rows) => rows.reduce((sum, of) => sum + of, 0);
  check("its time is that of all operations", sum(manifest.graph_work.map(([, , time]) => time)) === all);
  check("the flame graph has the time of all operations", sum(names.origins.map((origin) => origin.total_ns)) === all);
  const frames = await tab.$$eval(".flame button", (all) => all.map((one) => one.title));
  check("and the functions of the stack", frames.length > 1 && frames[0].startsWith("work of CUDA graphs"), frames);
  await tab.locator(".flame").scrollIntoViewIfNeeded();
  await picture(tab, "graphs");
  check("graphs: silent", heard.length === 0, heard);
  await close();
}
if (report.graph_origins) await graphs();

const device = report.devices[0];
const idle = manifest.leaves.some((leaf) => !leaf.busy && device?.leaves[leaf.name] > 0);
await evidence();
if (pictures) await answered();
const { tab, heard, close } = await opened({});
if (device) {
  const words = manifest.leaves;
  const wanted = Object.fromEntries(
    words.filter((leaf) => device.leaves[leaf.name] > 0).map((leaf) => [leaf.words, device.leaves[leaf.name]]));
  await tab.waitForSelector("#interval table");
  const whole = await shown(tab);
  check("the breakdown of the whole run is the report's, to the nanosecond",
    JSON.stringify(Object.entries(whole).sort()) === JSON.stringify(Object.entries(wanted).sort()),
    JSON.stringify({ whole, wanted }));
  const means = await tab.$$eval("#means dt", (names) => names.map((name) => name.textContent));
  const curves = manifest.timeline.curves.filter((curve) => curve.device === device.id).map((curve) => curve.label);
  check("each row of values has its mean over the interval", JSON.stringify(means) === JSON.stringify(curves), { means, curves });
  await picture(tab, "timeline");

  // Keyboard only: go to a gap, and check its text.
  await tab.focus("canvas.timeline");
  for (const key of ["w", "w", "d", "a", "s", "w"]) await tab.keyboard.press(key);
  await tab.keyboard.press("]");
  if (idle) {
    const gap = await tab.waitForSelector("#gap").catch(() => null);
    check("a key leads to a gap", Boolean(gap));
    const nanos = Number((await tab.textContent("#gap h2 small")).replace(" ns", ""));
    await tab.waitForFunction((sum) => document.querySelector("#interval p span")?.title === `${sum} ns`, nanos)
      .catch(() => {});
    const parts = await tab.$$eval("#gap tr", (rows) =>
      rows.map((row) => [row.cells[1].firstChild.textContent, Number(row.cells[2].title.replace(" ns", ""))]));
    check("the parts of a gap sum to it", parts.reduce((sum, [, part]) => sum + part, 0) === nanos, parts);
    const sum = Object.values(await shown(tab)).reduce((a, b) => a + b, 0);
    check("the selection is the gap", sum === nanos, `${sum} ${nanos}`);
    const largest = parts.reduce((a, b) => (b[1] > a[1] ? b : a));
    const leaf = words.find((leaf) => leaf.words === largest[0]);
    const text = await tab.textContent("#gap");
    await alike(tab, "key");
    const seconds = device.leaves[leaf.name];
    check("a gap says how much of the run is like it", text.includes(`${leaf.words}: `) && seconds >= largest[1], text);
    check("a gap says what ended it and who launched it", /ended by.+launched by.+samples.+gain at most/s.test(text), text);
    await settled(tab);
    const hash = await tab.evaluate(() => location.hash);
    check("the address holds the spot", /v=\d+-\d+/.test(hash) && /s=\d+-\d+/.test(hash), hash);
    const again = await opened({}, hash);
    await again.tab.waitForSelector("#interval table");
    const same = Object.values(await shown(again.tab)).reduce((a, b) => a + b, 0);
    check("a link opens the same spot", same === nanos, `${same} ${nanos}`);
    await again.close();
    await picture(tab, "gap");
  }
  await tab.keyboard.press("/");
  check("a slash goes to the search", await tab.evaluate(() => document.activeElement?.id === "search"));
  if (device.kernels[0]) await searched(tab, device);
  for (const name of await tab.$$eval("[role=tab]", (tabs) => tabs.map((each) => each.id))) {
    await tab.click(`#${name}`);
    await tab.waitForSelector(`.tabpanel[aria-labelledby=${name}]`);
    if (name === "tab-host") await tab.waitForFunction(() => !/^…/.test(document.querySelector(".tabpanel").textContent));
    const text = await tab.textContent(".tabpanel");
    check(`the view ${name.slice(4)} is not empty`, text.length > 20, text);
    if (name === "tab-causes") {
      const button = tab.locator(".tabpanel tbody button").first();
      await button.click();
      const pressed = async () => (await button.getAttribute("aria-pressed")) === "true";
      check("a highlighted cause is pressed, with the timeline on the screen", (await pressed()) && Boolean(await seen(tab, "canvas.timeline")));
      await button.click();
      check("and not after another click", !(await pressed()));
    }
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
      await tab.waitForFunction(() => /w=\d+/.test(location.hash)).catch(() => {});
      const after = await tab.textContent("#replay");
      check("the switch tells what a step becomes", after !== before && /becomes .+ less/.test(after), after);
      const scenarios = device.what_if.scenarios;
      const [first] = report.bottleneck.plan;
      for (const world of worlds.slice(1)) {
        await world.click();
        await tab.waitForFunction((world) => world.getAttribute("aria-pressed") === "true", world);
        // Not from the address, which changes only after the page is drawn.
        const label = await world.textContent();
        const [kind] = manifest.timeline.replay.variants.find(([, words]) => label === `if ${words.replace(/ \(.*/, "")}`);
        const alone = first?.kind === kind && first.speedup === scenarios.find((scenario) => scenario.kind === kind)?.speedup;
        const then = (await tab.textContent("#replay")).match(/Then the bottleneck is (.+)\./)?.[1];
        const wanted = alone ? manifest.causes.find((cause) => cause.name === first.then)?.words : undefined;
        check(`the bottleneck after ${kind} is that of the first fix alone, or none`, then === wanted, `${then} ${wanted}`);
      }
      await worlds[1].click();
      // The operations glide to their places.
      if (pictures) await tab.waitForTimeout(900);
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

for (const [name, viewport] of Object.entries({ wide: { width: 1280, height: 900 }, phone: { width: 390, height: 844 } })) {
  if (device) await clicked(name, viewport);
}

for (const [name, options] of Object.entries({
  dark: { colorScheme: "dark" }, phone: { viewport: { width: 390, height: 844 } },
  calm: { reducedMotion: "reduce", forcedColors: "active" },
})) {
  const other = await opened(options);
  const wide = await other.tab.evaluate(() => document.documentElement.scrollWidth - window.innerWidth);
  check(`${name}: nothing is wider than the window`, wide <= 0, wide);
  check(`${name}: silent`, other.heard.length === 0, other.heard);
  await picture(other.tab, name);
  await other.close();
}

const off = await opened({ javaScriptEnabled: false });
check("without scripts the bottleneck is there", (await off.tab.innerText("h1")).length > 10);
check("without scripts the answer is there", await off.tab.isVisible("#answer"));
await picture(off.tab, "static");
await off.close();

const paper = await opened({});
const pdf = pictures ? join(pictures, "page.pdf") : undefined;
const printed = await paper.tab.pdf({ path: pdf, format: "A4" });
const pages = printed.toString("latin1").match(/\/Type\s*\/Page\b/g)?.length;
check("it prints on at most six pages", pages > 0 && pages <= 6, pages);
await paper.tab.emulateMedia({ media: "print" });
check("paper has the answer and the timeline",
  (await paper.tab.isVisible("#answer")) && (!device || (await paper.tab.isVisible("canvas.timeline"))));
const screenOnly = await paper.tab.$$eval(".tools, .dock, .tabs, .tabpanel, .raw", (all) => all.filter((one) => one.checkVisibility()).length);
check("and nothing that is for the screen", screenOnly === 0, screenOnly);
await paper.close();

// As in a notebook: no origin, no storage.
const context = await browser.newContext();
const notebook = await context.newPage();
const said = [];
notebook.on("console", (message) => said.push(message.text()));
await notebook.setContent("<iframe sandbox='allow-scripts' width=1200 height=800></iframe>");
await notebook.$eval("iframe", (frame, text) => (frame.srcdoc = text), readFileSync(file, "utf8"));
const frame = await (await notebook.waitForSelector("iframe")).contentFrame();
const ready = await frame.waitForSelector("body.ready").catch(() => null);
check("it runs in a sandbox", Boolean(ready), said);
await context.close();

await browser.close();
process.exitCode = failed ? 1 : 0;
