import type { JSX } from "preact";

import { PAGES } from "../keys";
import { PageHead, Panel } from "../parts/small";

const ROWS: [string, string][] = [
  ["/", "to the filter of a list; Esc leaves it"],
  ...Object.entries(PAGES).map(([key, [, title]]) => [`g ${key}`, title] as [string, string]),
  ["Esc", "closes a dialog or a menu"],
  ["?", "this page"],
];

export function KeysPage(): JSX.Element {
  return (
    <>
      <PageHead title="Keys" sub="They work everywhere but in fields." />
      <Panel>
        <dl class="facts keys">
          {ROWS.map(([keys, what]) => (
            <div key={keys}>
              <dt>
                {keys.split(" ").map((key) => (
                  <kbd>{key}</kbd>
                ))}
              </dt>
              <dd>{what}</dd>
            </div>
          ))}
        </dl>
      </Panel>
    </>
  );
}
