import { expect, test } from "vitest";

import { whatIsIn } from "../src/salvage";

const piece = { node: "n", file: "f", folder: "/d", bytes: 2048, reason: "", time: "2026-01-01T00:00:00Z" };

test("a piece says what it holds", () => {
  expect(whatIsIn({ ...piece, segment: "1", offset: 2 })).toBe("2 KiB of a log");
  expect(whatIsIn({ ...piece, vhost: "/", queue: "q", messages: 1 })).toBe("1 message of q");
});
