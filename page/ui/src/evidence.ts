// Links from sentences of the static report to the place in the timeline that they speak of.

import { GAP_END, type Lane, type Page, type Report } from "./data";

/** What a sentence speaks of: a kernel, what the launching threads do at a line (names), or idle time of a cause. */
export type Topic = { kernel: string } | { file: string; line: number; activities: string[] } | { cause: string };

/** The topic of a sentence; `null` without one in the timeline. */
export function topicOf(page: Page, sentence: string): Topic | null {
  const kernel = sentence.match(/\bkernel (.+)/i)?.[1];
  if (kernel) {
    const names: string[] = page.manifest.report.devices.flatMap((device: Report) => device.kernels.map((row: Report) => row.name));
    // Long names are cut in the middle.
    const [head, tail] = kernel.split(/[\s,;:()]+/).find((word) => word.length > 5 && word.includes("~"))?.split("~") ?? [];
    const is = (name: string) => kernel.startsWith(name) || Boolean(head && tail && name.includes(head) && name.endsWith(tail));
    // One name may begin with another.
    const found = names.filter(is).sort((a, b) => b.length - a.length)[0];
    if (found) return { kernel: found };
  }
  const line = sentence.match(/\bat ([^\s:]+):(\d+)/);
  const said = sentence.toLowerCase();
  const activities = page.manifest.activities.filter(([, words]) => said.includes(words.toLowerCase())).map(([name]) => name);
  return line && activities.length > 0 ? { file: line[1]!, line: Number(line[2]), activities } : null;
}

/** When samples saw each stack: times in order. */
async function seenAt(page: Page): Promise<Map<number, number[]>> {
  const times = new Map<number, number[]>();
  for (const lane of page.lanes("samples")) {
    for (const index of lane.chunks.keys()) {
      const { count, begin, duration, values } = await page.chunk(lane, index);
      for (let i = 0; i < count; i++) {
        const stack = values[0]![i]!;
        if (!times.has(stack)) times.set(stack, []);
        times.get(stack)!.push(begin[i]! + duration[i]!);
      }
    }
  }
  times.forEach((of) => of.sort((a, b) => a - b));
  return times;
}

/** The longest idle segment of a topic after start-up, as a time of a device. A segment of a line contains the sample that
 * saw the line, if the samples are in the page: the rest of what a sample explains is as likely to be something else. */
export async function longest(page: Page, topic: Topic): Promise<[Lane, number, number] | null> {
  let best: [Lane, number, number] | null = null;
  const { leaves, causes } = page.manifest;
  const samples = "line" in topic ? await seenAt(page) : null;
  const about = new Map<number, boolean>();
  const at = (topic: { file: string; line: number }, stack: number) => {
    let known = about.get(stack);
    if (known === undefined) {
      // A line that called another one of its file is not the line.
      const inner = page.stack(stack).find(({ file }) => `/${file}`.endsWith(`/${topic.file}`));
      about.set(stack, (known = inner?.line === topic.line));
    }
    return known;
  };
  const does = (subject: number, activities: string[]) => {
    const [kind, name] = page.subject(subject);
    return kind === "host" && activities.includes(name);
  };
  for (const lane of page.lanes("device")) {
    const steady = page.steadyFrom(lane.device!);
    for (const [index, chunk] of lane.chunks.entries()) {
      if (chunk.last <= steady) continue;
      const { count, begin, duration, values } = await page.chunk(lane, index);
      for (let i = 0; i < count; i++) {
        const leaf = leaves[values[0]![i]! % GAP_END]!;
        if (leaf.busy || begin[i]! < steady || (best && duration[i]! <= best[2] - best[1])) continue;
        if ("cause" in topic && causes[leaf.cause]!.name !== topic.cause) continue;
        if ("line" in topic && !(does(values[1]![i]!, topic.activities) && at(topic, values[2]![i]!))) continue;
        const [from, to] = [begin[i]!, begin[i]! + duration[i]!];
        const times = samples?.get(values[2]![i]!);
        if (times && !times.some((time) => from <= time && time <= to)) continue;
        best = [lane, from, to];
      }
    }
  }
  return best;
}

/** Appends a link to each sentence of the evidence with a topic, and one to the headline if it names idle time. */
export function link(page: Page, go: (topic: Topic) => void): void {
  const { bottleneck } = page.manifest.report;
  const append = (to: Element | null, text: string, topic: Topic) => {
    const button = document.createElement("button");
    button.className = "goto";
    button.textContent = text;
    button.addEventListener("click", () => go(topic));
    to?.append(" ", button);
  };
  const idle = page.manifest.leaves.some((leaf) => !leaf.busy && page.manifest.causes[leaf.cause]!.name === bottleneck.cause &&
    page.manifest.report.devices.some((device: { leaves: Record<string, number> }) => device.leaves[leaf.name]! > 0));
  const list = document.querySelector("header .evidence");
  for (const item of list?.children ?? []) {
    const topic = topicOf(page, item.textContent ?? "");
    if (topic) append(item, "show", topic);
  }
  if (idle) append(document.querySelector("header h1"), "show the longest", { cause: bottleneck.cause });
}
