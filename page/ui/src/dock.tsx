// The panel of answers: beside the timeline of a wide window, at the bottom of a narrow one, always within the window.

import type { ComponentChildren } from "preact";
import { useEffect, useLayoutEffect, useRef } from "preact/hooks";

/** Width from which the panel is beside the timeline, as in page.css. */
const WIDE = "(min-width: 1000px)";
const ROOM = 8;
const LEAST = 180;

/** `at` is the bottom of the place in the window that was asked about; NaN if it was not by a pointer. */
export function Dock({ docked, at, children }: { docked: boolean; at: number; children: ComponentChildren }) {
  const box = useRef<HTMLDivElement>(null);
  const fit = () => {
    const { style } = box.current!;
    if (!matchMedia(WIDE).matches) style.maxHeight = "";
    else {
      const top = Math.max(ROOM, box.current!.getBoundingClientRect().top);
      style.maxHeight = `${Math.max(LEAST, window.innerHeight - top - ROOM)}px`;
    }
  };
  useEffect(() => {
    window.addEventListener("scroll", fit, { passive: true });
    window.addEventListener("resize", fit);
    return () => {
      window.removeEventListener("scroll", fit);
      window.removeEventListener("resize", fit);
    };
  }, []);
  useLayoutEffect(fit);
  useEffect(() => {
    if (!docked || Number.isNaN(at) || matchMedia(WIDE).matches) return;
    // The panel must not hide what it is about.
    const over = at + ROOM - box.current!.getBoundingClientRect().top;
    if (over > 0) window.scrollBy(0, over);
  }, [docked, at]);
  return <div class={docked ? "dock docked" : "dock"} ref={box} tabIndex={0} role="group" aria-label="Details">{children}</div>;
}
