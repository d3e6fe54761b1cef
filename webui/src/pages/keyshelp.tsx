import type { JSX } from "preact";

import { PAGES } from "../keys";
import { Facts, PageHead, Panel } from "../parts/small";

export function KeysPage(): JSX.Element {
  return (
    <>
      <PageHead title="Keys" />
      <Panel>
        <Facts
          rows={[
            [
              "/",
              "to the filter of a list; Esc leaves it",
            ],
            ...Object.entries(PAGES).map(([key, [, title]]) => [`g ${key}`, title] as [string, string]),
            ["?", "this page"],
          ]}
        />
      </Panel>
    </>
  );
}
