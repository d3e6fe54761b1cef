import { describe, expect, test } from "vitest";

import { age, ago, bytes, count, duration, percent, plural, rate, shellWord, short, shortNode } from "../src/format";

test("the age of the oldest message: of none, of one that nobody knows of, and of others", () => {
  expect([age(null, 0), age(undefined, undefined), age(null, 3), age(0, 1), age(75, 1)]).toEqual(["–", "–", "unknown", "< 1 s", "1 min 15 s"]);
});

describe("numbers", () => {
  test("counts have their thousands apart, and nothing is a dash", () => {
    expect(count(1234567)).toBe("1,234,567");
    expect(count(undefined)).toBe("–");
  });
  test("short ones take no more than four digits", () => {
    expect([0, 7, 9999, 12345, 1_234_567, 3.14159, 2e9].map(short)).toEqual(["0", "7", "9,999", "12.3 k", "1.23 M", "3.14", "2 G"]);
    expect(short(Number.NaN)).toBe("–");
  });
  test("rates and sizes have units", () => {
    expect(rate(0)).toBe("0/s");
    expect(rate(12.34)).toBe("12.3/s");
    expect([0, 1023, 1024, 1536, 5 * 1024 ** 3].map(bytes)).toEqual(["0 B", "1023 B", "1 KiB", "1.5 KiB", "5 GiB"]);
  });
  test("one is not many", () => {
    expect(plural(1, "queue")).toBe("1 queue");
    expect(plural(2000, "queue")).toBe("2,000 queues");
  });
  test("a part is never more than the whole", () => {
    expect([percent(1, 4), percent(5, 4), percent(1, 0)]).toEqual([25, 100, 0]);
  });
});

describe("times", () => {
  test("lengths are told in their two largest units", () => {
    expect([400, 1000, 61_000, 3_600_000, 90_061_000].map(duration)).toEqual(["400 ms", "1 s", "1 min 1 s", "1 h", "1 d 1 h"]);
  });
  test("a moment ago is now", () => {
    expect(ago(1000, 2000)).toBe("now");
    expect(ago(0, 65_000)).toBe("1 min 5 s ago");
  });
});

describe("words", () => {
  test("of a shell", () => {
    expect(shellWord("orders.new")).toBe("orders.new");
    expect(shellWord("a b")).toBe("'a b'");
    expect(shellWord("it's")).toBe("'it'\\''s'");
  });
  test("of nodes", () => {
    expect(shortNode("node1@host")).toBe("node1");
    expect(shortNode("plain")).toBe("plain");
  });
});
