import { expect, test } from "vitest";

import { href, parsePlace } from "../src/router";
import { listQuery } from "../src/parts/table";

test("names may hold anything", () => {
  const steps = ["queues", "/", "a/b?c#d %2F ü"];
  expect(parsePlace(href(steps)).steps).toEqual(steps);
});

test("what is not given is not in the address", () => {
  expect(href(["queues"], { name: "", page: null, size: 50 })).toBe("#/queues?size=50");
});

test("an address that cannot be read is taken as it is", () => {
  expect(parsePlace("#/queues/%zz").steps).toEqual(["queues", "%zz"]);
});

test("a list asks the server for one page of what it shows", () => {
  const { query } = parsePlace(href(["queues"], { name: "a.*", regex: 1, sort: "messages", down: 1, page: 3, size: 100 }));
  const asked = new URLSearchParams(listQuery(query, ["name", "messages"], "lengths_age=60"));
  expect(Object.fromEntries(asked)).toEqual({
    page: "3",
    page_size: "100",
    name: "a.*",
    use_regex: "true",
    sort: "messages",
    sort_reverse: "true",
    columns: "name,messages",
    lengths_age: "60",
  });
});
