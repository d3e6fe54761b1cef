import { expect, test } from "vitest";

import { curl } from "../src/format";

test("a request is shown as curl makes it, whatever is in it", () => {
  expect(curl("guest", "http://localhost:15672/", "DELETE", "queues/%2F/q")).toBe("curl -u guest -X DELETE http://localhost:15672/api/queues/%2F/q");
  expect(curl("a b", "http://h/", "PUT", "x", { it: "isn't" })).toBe(`curl -u 'a b' -X PUT http://h/api/x -d '{"it":"isn'\\''t"}'`);
});
