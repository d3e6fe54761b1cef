import { expect, test } from "vitest";

import { failureWords } from "../src/failures";

test("the API's reason comes first, and then what can be done", () => {
  expect(failureWords(503, "node n2 does not answer")).toEqual({ title: "node n2 does not answer", text: expect.stringContaining("no majority") });
  expect(failureWords(401, "Not monitor user").text).toContain("warrenctl set_user_tags");
  expect(failureWords(403, "Forbidden").text).toContain("do not allow");
  expect(failureWords(500, "oops").text).toContain("(500)");
  expect(failureWords(0, "The node does not answer.").text).toContain("last known");
  expect(failureWords(400, "a priority is a number")).toEqual({ title: "a priority is a number", text: "" });
});

test("a reason that says nothing is put into words", () => {
  expect(failureWords(404, "Not Found").title).toBe("There is no such thing.");
  expect(failureWords(404, "no queue 'a' in vhost '/'").title).toBe("no queue 'a' in vhost '/'");
});
