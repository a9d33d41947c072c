// A smoke test in Firefox: opens a page from file:// and checks that it is drawn, equals the report and makes no
// requests. Prints one line for each successful check; the exit code is 1 if a check fails, 3 if Firefox is missing.
//
//   node firefox.mjs PAGE REPORT.json [PICTURE.png]
//   node firefox.mjs PAGE                              # only prints the time to open it
//
// Firefox: the program in FIREFOX; else that of the system, which tests/browser.sh fetches. It is driven through
// Marionette, which every Firefox has: JSON messages preceded by their length.

import { spawn } from "node:child_process";
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { connect } from "node:net";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { pathToFileURL } from "node:url";

const [file, reportFile, picture] = process.argv.slice(2);
const report = reportFile ? JSON.parse(readFileSync(reportFile, "utf8")) : null;
const programs = [process.env.FIREFOX, "/usr/bin/firefox-esr", "/usr/bin/firefox"];
const program = programs.find((path) => path && existsSync(path));
if (!program) {
  console.error("no Firefox: tests/browser.sh fetches one");
  process.exit(3);
}
let failed = false;
const check = (what, holds, found = "") => {
  console.log(`${holds ? "ok" : "NOT OK"} ${what}${holds ? "" : ` ${JSON.stringify(found)}`}`);
  failed ||= !holds;
};
const wait = (milliseconds) => new Promise((done) => setTimeout(done, milliseconds));

/** Waits until a condition holds, for at most a minute. */
async function until(what, is) {
  for (let time = 0; time < 600; time++) {
    const found = await is();
    if (found) return found;
    await wait(100);
  }
  throw new Error(`${what} did not come within a minute`);
}

/** Commands to a browser that listens on a port. */
class Marionette {
  constructor(port) {
    this.socket = connect(port, "127.0.0.1");
    this.answers = new Map();
    this.next = 1;
    let bytes = Buffer.alloc(0);
    this.socket.on("data", (more) => {
      bytes = Buffer.concat([bytes, more]);
      for (;;) {
        const colon = bytes.indexOf(":");
        const length = Number(bytes.subarray(0, Math.max(0, colon)));
        if (colon < 0 || bytes.length < colon + 1 + length) return;
        const message = JSON.parse(bytes.subarray(colon + 1, colon + 1 + length));
        bytes = bytes.subarray(colon + 1 + length);
        // The first message identifies the browser.
        if (Array.isArray(message)) this.answers.get(message[1])?.(message);
      }
    });
  }

  async send(command, parameters = {}) {
    const id = this.next++;
    const text = JSON.stringify([0, id, command, parameters]);
    const answer = new Promise((done) => this.answers.set(id, done));
    this.socket.write(`${Buffer.byteLength(text)}:${text}`);
    const [, , error, value] = await answer;
    if (error) throw new Error(`${command}: ${error.message}`);
    return value;
  }

  /** Returns the result of a function of the page. */
  async run(script) {
    const { value } = await this.send("WebDriver:ExecuteScript", { script: `return (${script})()`, args: [] });
    return value;
  }
}

const profile = mkdtempSync(join(tmpdir(), "gpuwhy-firefox-"));
writeFileSync(join(profile, "user.js"), 'user_pref("marionette.port", 0);\nuser_pref("datareporting.policy.dataSubmissionEnabled", false);\n');
const browser = spawn(program, ["--headless", "--marionette", "--remote-allow-system-access", "--no-remote", "--profile", profile], {
  stdio: "ignore", env: { ...process.env, MOZ_HEADLESS_WIDTH: "1280", MOZ_HEADLESS_HEIGHT: "900" },
});
try {
  // It writes its port to a file.
  const told = join(profile, "MarionetteActivePort");
  const port = await until("Firefox", () => existsSync(told) && Number(readFileSync(told, "utf8")));
  const firefox = new Marionette(port);
  const { capabilities } = await firefox.send("WebDriver:NewSession", { capabilities: { alwaysMatch: { acceptInsecureCerts: false } } });
  await firefox.send("WebDriver:Navigate", { url: pathToFileURL(resolve(file)).href });
  await until("the timeline", () => firefox.run(() => document.body.classList.contains("ready") && Boolean(document.querySelector("#interval table"))));
  const drawn = await until("the picture", () => firefox.run(() => performance.getEntriesByName("gpuwhy-drawn")[0]?.startTime));
  console.log(`Firefox ${capabilities.browserVersion}: drawn after ${(drawn / 1000).toFixed(2)} s`);
  if (report) await checks(firefox);
  await firefox.send("Marionette:Quit", { flags: ["eForceQuit"] }).catch(() => {});
} finally {
  browser.kill();
  const killing = setTimeout(() => browser.kill("SIGKILL"), 5000);
  if (browser.exitCode === null && browser.signalCode === null) await new Promise((done) => browser.once("exit", done));
  clearTimeout(killing);
  // Its other processes may still write.
  rmSync(profile, { recursive: true, force: true, maxRetries: 10 });
}
process.exit(failed ? 1 : 0);

async function checks(firefox) {
  const rows = await firefox.run(() =>
    [...document.querySelectorAll("#interval tr")].map((row) => Number(row.cells[2].title.replace(" ns", ""))));
  const device = report.devices[0];
  const wanted = Object.values(device.leaves).filter((nanos) => nanos > 0).sort((a, b) => b - a);
  check("the breakdown of the whole run is the report's, to the nanosecond", JSON.stringify(rows) === JSON.stringify(wanted), { rows, wanted });
  // The page hears keys from when it has written its place into the address.
  await until("the address", () => firefox.run(() => location.hash));
  await firefox.run(() => document.dispatchEvent(new KeyboardEvent("keydown", { key: "]", bubbles: true })));
  const gap = await until("a gap", () => firefox.run(() => document.querySelector("#gap h2 small")?.textContent));
  const parts = await firefox.run(() =>
    [...document.querySelectorAll("#gap tr")].map((row) => Number(row.cells[2].title.replace(" ns", ""))));
  check("a key leads to a gap, whose parts sum to it", parts.reduce((a, b) => a + b, 0) === Number(gap.replace(" ns", "")), { parts, gap });
  const colors = await firefox.run(() => {
    const canvas = document.querySelector("canvas.timeline");
    const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
    const colors = new Set();
    for (let at = 0; at < data.length; at += 4) colors.add((data[at] << 16) | (data[at + 1] << 8) | data[at + 2]);
    return colors.size;
  });
  check("the timeline is drawn", colors > 5, colors);
  for (const tab of await firefox.run(() => [...document.querySelectorAll("[role=tab]")].map((tab) => tab.id))) {
    await firefox.run(`() => document.getElementById(${JSON.stringify(tab)}).click()`);
    await until(`the view ${tab.slice(4)}`, () => firefox.run(
      `() => document.querySelector(".tabpanel[aria-labelledby=${tab}]")?.textContent.length > 20`));
    console.log(`ok the view ${tab.slice(4)} is not empty`);
  }
  const requests = await firefox.run(() => performance.getEntriesByType("resource").map((entry) => entry.name));
  check("nothing is requested", requests.length === 0, requests);
  if (picture) {
    const { value } = await firefox.send("WebDriver:TakeScreenshot", { full: false });
    writeFileSync(picture, Buffer.from(value, "base64"));
  }
  await firefox.send("Marionette:SetContext", { value: "chrome" });
  const said = await firefox.run(() => Services.console.getMessageArray()
    .filter((message) => message instanceof Ci.nsIScriptError && message.sourceName.startsWith("file:")).map((message) => message.errorMessage));
  check("the console is silent", said.length === 0, said);
}
