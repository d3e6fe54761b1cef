import { expect, test } from "vitest";

import { EventParser } from "../src/sse";

const STREAM = ': listening\n\nid: 7\nevent: node.down\ndata: {"a":1}\n\nid: 8\ndata: one\ndata: two\n\n';

test("events are whole whatever pieces the stream comes in", () => {
  for (let size = 1; size < STREAM.length; size += 1) {
    const parser = new EventParser();
    const found = [];
    for (let at = 0; at < STREAM.length; at += size) found.push(...parser.push(STREAM.slice(at, at + size)));
    expect(found).toEqual([
      { id: "7", name: "node.down", data: '{"a":1}' },
      { id: "8", name: "message", data: "one\ntwo" },
    ]);
  }
});

test("a comment is no event, and an id stays until the next", () => {
  const parser = new EventParser();
  expect(parser.push(": still here\n\nid: 3\ndata: x\n\ndata: y\n\n").map((event) => event.id)).toEqual(["3", "3"]);
});
