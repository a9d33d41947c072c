// Queries a trace with Perfetto's trace processor.
//
// usage: node ask.mjs PACKAGE TRACE SQL...
//
// PACKAGE is the unpacked npm package. Prints a JSON object: "errors", the rows of the trace processor's own statistics
// that mean errors or lost data, and "answers", a list of rows for each query. The engine was made for a web worker: this
// script provides the environment of one, and communicates over a message channel.

import fs from "node:fs";
import path from "node:path";
import { pathToFileURL } from "node:url";
import vm from "node:vm";

const [folder, trace, ...queries] = process.argv.slice(2);
const assets = path.join(folder, "assets/trace-processor");

// Environment of a worker.
Object.defineProperty(globalThis, "self", { value: globalThis, configurable: true, writable: true });
globalThis.WorkerGlobalScope ??= function () {};
Object.defineProperty(globalThis, "location", { value: { href: `${pathToFileURL(assets).href}/` }, configurable: true });
// The engine logs to stdout, which is for the result.
const answer = console.log;
console.log = () => {};
console.warn = () => {};

// The start-up code downloads the engine and keeps the bridge private; both are changed here.
globalThis.engineBytes = new Uint8Array(fs.readFileSync(path.join(assets, "trace_processor.wasm")));
let glue = fs.readFileSync(path.join(assets, "engine_bundle.node.js"), "utf8");
for (const [was, is] of [
  ["this.useMemory64 = hasMemory64Support();", "this.useMemory64 = false;"],
  ["locateFile: (s) => s,", "locateFile: (s) => s, wasmBinary: globalThis.engineBytes,"],
  ["const wasmBridge = new", "const wasmBridge = globalThis.engineBridge = new"],
]) {
  if (!glue.includes(was)) throw new Error(`the package is not as expected: it lacks ${was}`);
  glue = glue.replace(was, is);
}
vm.runInThisContext(glue);

const { EngineBase } = await import(pathToFileURL(path.join(assets, "engine.mjs")).href);
class Engine extends EngineBase {
  mode = "WASM";
  id = "test";
  constructor(port) {
    super();
    this.port = port;
    port.onmessage = (message) => message.data instanceof Uint8Array && this.onRpcResponseBytes(message.data);
  }
  rpcSendRequestBytes(bytes) {
    this.port.postMessage(bytes);
  }
}

const channel = new MessageChannel();
globalThis.engineBridge.initialize(channel.port1);
const engine = new Engine(channel.port2);
// The bridge accepts no requests before the engine is compiled.
while (!globalThis.engineBridge.reqBufferAddr) await new Promise((done) => setTimeout(done, 20));

const bytes = new Uint8Array(fs.readFileSync(trace));
const piece = 32 << 20;
for (let at = 0; at < bytes.length; at += piece) await engine.parse(bytes.subarray(at, at + piece));
await engine.notifyEof();

async function rows(query) {
  const result = await engine.query(query);
  if (result.error()) throw new Error(`${query}: ${result.error()}`);
  const columns = result.columns();
  const found = [];
  for (const row = result.iter({}); row.valid(); row.next()) {
    found.push(Object.fromEntries(columns.map((column) => [column, row.get(column)])));
  }
  return found;
}

const errors = await rows("SELECT name, value FROM stats WHERE severity IN ('error', 'data_loss') AND value > 0");
const answers = [];
for (const query of queries) answers.push(await rows(query));
answer(JSON.stringify({ errors, answers }, (_, value) => (typeof value === "bigint" ? Number(value) : value)));
process.exit(0);
