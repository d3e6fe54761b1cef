import { expect, test } from "vitest";

import { begun, byteCeiling, ceiling, levels, rateLines, rates, spanQuery } from "../src/samples";

const details = {
  rate: 3,
  samples: [
    { sample: 60, timestamp: 10_000 },
    { sample: 10, timestamp: 5_000 },
    { sample: 10, timestamp: 0 },
  ],
};

test("samples come newest first and are drawn oldest first", () => {
  expect(levels(details).map((point) => point.at)).toEqual([0, 5000, 10_000]);
});

test("a rate is what a counter grew by in the time between", () => {
  expect(rates(details)).toEqual([
    { at: 5000, value: 0 },
    { at: 10_000, value: 10 },
  ]);
});

test("a counter that begins anew has no negative rate", () => {
  const anew = { samples: [{ sample: 0, timestamp: 5000 }, { sample: 9, timestamp: 0 }] };
  expect(rates(anew)).toEqual([{ at: 5000, value: 0 }]);
});

test("without samples there is the rate of now only", () => {
  expect(rateLines({ publish_details: { rate: 4 } }, [["publish", "Publish"]])).toEqual([{ name: "Publish", points: [], now: 4 }]);
  expect(rateLines(undefined, [["publish", "Publish"]])[0]!.now).toBe(0);
});

test("the top of a chart is a round number that nothing is above", () => {
  expect([0, 0.3, 1, 1.1, 4, 7, 99, 100, 101].map(ceiling)).toEqual([1, 0.5, 1, 2, 5, 10, 100, 100, 200]);
});

test("what a chart asks of the API", () => {
  expect(spanQuery("1m", "lengths")).toBe("lengths_age=60&lengths_incr=5");
  expect(spanQuery("nonsense", "lengths", "msg_rates")).toBe("lengths_age=600&lengths_incr=5&msg_rates_age=600&msg_rates_incr=5");
});

test("scales of bytes end at round numbers of the unit that is shown", () => {
  expect(byteCeiling(64.2 * 2 ** 20)).toBe(100 * 2 ** 20);
  expect(byteCeiling(1500)).toBe(2 * 1024);
  expect(byteCeiling(0)).toBe(1);
});

test("a history begins where there is something", () => {
  const line = (...values: number[]) => ({ name: "a", now: 1, points: values.map((value, at) => ({ at, value })) });
  expect(begun([line(0, 0, 3, 0, 4)])[0]!.points.map(({ value }) => value)).toEqual([3, 0, 4]);
  expect(begun([line(0, 0)])[0]!.points).toHaveLength(2);
});
