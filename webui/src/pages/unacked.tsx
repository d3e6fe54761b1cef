import type { JSX } from "preact";

import { quote } from "../api";
import { clock, duration, plural, shellWord } from "../format";
import { Empty, Panel } from "../parts/small";
import { List } from "../parts/table";
import { href } from "../router";
import type { ChannelDetails, Queue } from "../types";

interface Held {
  delivery_tag: number;
  consumer_tag: string | null;
  delivered_at: number;
  age_ms: number;
  channel_details: ChannelDetails;
}

/** Who holds what was not acknowledged, and since when. */
export function Unacked({ queue }: { queue: Queue }): JSX.Element {
  return (
    <Panel>
      <p class="dim lead">
        {queue.messages_unacknowledged === 1 ? "1 message was" : `${plural(queue.messages_unacknowledged ?? 0, "message")} were`} delivered and not acknowledged yet. What is held goes back to the queue when its channel closes.
      </p>
      <List<Held>
        path={`queues/${quote(queue.vhost, queue.name)}/unacked`}
        noun="deliveries"
        noFilter
        keyOf={(row) => `${row.channel_details.name} ${row.delivery_tag}`}
        empty={<Empty title="Nobody holds a message of this queue." command={`warrenctl unacked -p ${shellWord(queue.vhost)} ${shellWord(queue.name)}`} />}
        columns={[
          { title: "Held for", show: (row) => <span class="whole">{duration(row.age_ms)}</span> },
          { title: "Since", wide: true, show: (row) => clock(row.delivered_at) },
          {
            title: "By",
            show: (row) =>
              row.channel_details.connection_name ? (
                <>
                  <a href={href(["connections", row.channel_details.connection_name])}>{row.channel_details.user_provided_name ?? row.channel_details.connection_name}</a>
                  {row.channel_details.user_provided_name && <div class="dim small wide">{row.channel_details.connection_name}</div>}
                </>
              ) : (
                row.channel_details.name
              ),
          },
          { title: "User", show: (row) => row.channel_details.user },
          { title: "Consumer", wide: true, show: (row) => (row.consumer_tag ? <code>{row.consumer_tag}</code> : "basic.get") },
          { title: "Tag", numeric: true, wide: true, show: (row) => row.delivery_tag },
        ]}
      />
    </Panel>
  );
}
