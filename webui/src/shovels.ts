// The definition of a shovel, out of a form.

export interface ShovelForm {
  srcUri: string;
  /** A queue, or an exchange with a routing key. */
  srcKind: "queue" | "exchange";
  srcName: string;
  srcKey: string;
  destUri: string;
  destKind: "queue" | "exchange";
  destName: string;
  destKey: string;
  ackMode: string;
  deleteAfter: string;
}

export const NEW_SHOVEL: ShovelForm = {
  srcUri: "amqp://",
  srcKind: "queue",
  srcName: "",
  srcKey: "",
  destUri: "amqp://",
  destKind: "queue",
  destName: "",
  destKey: "",
  ackMode: "on-confirm",
  deleteAfter: "never",
};

export function definitionOf(form: ShovelForm): Record<string, unknown> {
  const found: Record<string, unknown> = { "src-uri": form.srcUri, [`src-${form.srcKind}`]: form.srcName };
  if (form.srcKind === "exchange" && form.srcKey) found["src-exchange-key"] = form.srcKey;
  found["dest-uri"] = form.destUri;
  found[`dest-${form.destKind}`] = form.destName;
  if (form.destKind === "exchange" && form.destKey) found["dest-exchange-key"] = form.destKey;
  if (form.ackMode !== NEW_SHOVEL.ackMode) found["ack-mode"] = form.ackMode;
  if (form.deleteAfter !== NEW_SHOVEL.deleteAfter) found["src-delete-after"] = /^\d+$/.test(form.deleteAfter) ? Number(form.deleteAfter) : form.deleteAfter;
  return found;
}

export interface Shovel {
  name: string;
  vhost: string;
  node?: string;
  state: string;
  forwarded?: number;
  pending?: number;
  remaining?: number;
  rate?: number;
  since?: number;
  src_uri?: string;
  src_queue?: string;
  src_exchange?: string;
  src_exchange_key?: string;
  dest_uri?: string;
  dest_queue?: string;
  dest_exchange?: string;
  dest_exchange_key?: string;
  blocked_status?: string;
  reason?: string;
  last_error?: string;
  last_error_at?: number;
  paused_by?: string;
  paused_at?: number;
}

/** One end of a shovel in words: the queue or exchange, and where that is if it is not here. */
export function endOf(shovel: Shovel, side: "src" | "dest"): { what: string; where: string } {
  const queue = shovel[`${side}_queue`];
  const exchange = shovel[`${side}_exchange`];
  const key = shovel[`${side}_exchange_key`];
  const uri = shovel[`${side}_uri`] ?? "";
  const what = queue !== undefined ? `queue ${queue}` : exchange !== undefined ? `exchange ${exchange || "(default)"}${key ? `, key ${key}` : ""}` : "as they were published";
  return { what, where: uri === "amqp://" || uri === "" ? "this cluster" : uri };
}

/** Whether it is in a state that somebody has to look at. */
export function toneOf(shovel: Shovel): "good" | "warn" | "bad" | "plain" {
  if (shovel.state === "running") return shovel.blocked_status === "blocked" ? "warn" : "good";
  if (shovel.state === "terminated") return "bad";
  return shovel.state === "paused" ? "warn" : "plain";
}
