// The replayed worlds: where operations would be if one cost were gone.

import type { Place } from "./paint";

/** See the module. */
export interface Worlds {
  /** Draws a device in a world; answers whether it is known there. */
  draw(place: Place, device: number, world: number): boolean;
}
