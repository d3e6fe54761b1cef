import type { JSX } from "preact";

import { bytes, shortNode } from "../format";
import { useLive } from "../live";
import { Empty, Loaded, PageHead, Panel } from "../parts/small";
import { Plain } from "../parts/table";

interface Piece {
  node: string;
  file: string;
  folder: string;
  segment: string;
  offset: number;
  bytes: number;
  reason: string;
  time: string;
}

export function SalvagePage(): JSX.Element {
  const live = useLive<Piece[]>("warren/salvage", 15000);
  return (
    <>
      <PageHead title="Salvage" sub="What a node could not read of its log, or had to give up, is put aside and never thrown away." />
      <Panel>
        <Loaded live={live}>
          {(rows) => (
            <Plain
              label="Salvaged pieces"
              rows={rows}
              keyOf={(row) => `${row.node} ${row.file}`}
              empty={<Empty title="Nothing had to be put aside on any node that runs.">When a disk gives back damaged bytes, they appear here, and the queues that are hit say so.</Empty>}
              columns={[
                { title: "When", show: (row) => row.time },
                { title: "Node", show: (row) => shortNode(row.node) },
                { title: "Why", show: (row) => row.reason },
                { title: "Size", numeric: true, show: (row) => bytes(row.bytes) },
                { title: "Where", wide: true, show: (row) => <code>{`${row.folder}/${row.file}`}</code> },
              ]}
            />
          )}
        </Loaded>
      </Panel>
    </>
  );
}
