import { expect, test } from "vitest";

import { choicesOf, choose, fieldsOf, shownColumns } from "../src/columns";

const COLUMNS = [{ title: "Name" }, { title: "Ready" }, { title: "Size", hidden: true, fields: ["message_bytes", "name"] }];
const titles = (choices: Record<string, boolean>) => shownColumns(COLUMNS, choices).map(({ title }) => title);

test("columns are shown as the list has them, or as they were chosen", () => {
  expect(titles({})).toEqual(["Name", "Ready"]);
  expect(titles({ Size: true, Ready: false })).toEqual(["Name", "Size"]);
  // What a row is about stays.
  expect(titles({ Name: false })).toEqual(["Name", "Ready"]);
});

test("choices hold for their list, and can be taken back", () => {
  choose("queues", { Ready: false });
  expect([choicesOf("queues"), choicesOf("users")]).toEqual([{ Ready: false }, {}]);
  choose("queues", null);
  expect(choicesOf("queues")).toEqual({});
});

test("what a column needs is asked for when it is shown", () => {
  expect(fieldsOf(["name"], shownColumns(COLUMNS, {}))).toEqual(["name"]);
  expect(fieldsOf(["name"], shownColumns(COLUMNS, { Size: true }))).toEqual(["name", "message_bytes"]);
  // All fields are asked for: no column needs more.
  expect(fieldsOf([], shownColumns(COLUMNS, { Size: true }))).toEqual([]);
});
