import { expect, test } from "vitest";

import { asText, csv, tsv } from "../src/copy";

const CELLS = [
  ["Name", "Says"],
  ["a", 'one, "two"'],
  ["b", " three\n four\tfive "],
];

test("a table is copied as spreadsheets read it", () => {
  expect(csv(CELLS)).toBe('Name,Says\na,"one, ""two"""\nb,three four five');
  expect(tsv(CELLS)).toBe('Name\tSays\na\tone, "two"\nb\tthree four five');
});

test("as JSON the rows are copied as the API has them", () => {
  const rows = [{ name: "a", messages: 12345 }];
  expect(JSON.parse(asText("json", CELLS, rows))).toEqual(rows);
  expect(asText("csv", CELLS, rows)).toBe(csv(CELLS));
  expect(asText("tsv", CELLS, rows)).toBe(tsv(CELLS));
});
