// Consumers as tables show them.

import { Badge, Name } from "../parts/small";
import type { Column } from "../parts/table";
import { href } from "../router";
import type { Consumer } from "../types";

export const CONSUMER_COLUMNS: Column<Consumer>[] = [
  { title: "Tag", show: (row) => <code>{row.consumer_tag}</code> },
  {
    title: "Queue",
    wide: true,
    show: (row) => row.queue && <a href={href(["queues", row.queue.vhost, row.queue.name])}><Name text={row.queue.name} /></a>,
  },
  {
    title: "Channel",
    show: ({ channel_details: channel }) =>
      channel?.name && (
        <>
          <a href={href(["channels", channel.name])}>{channel.user_provided_name ?? channel.name}</a>
          {channel.user_provided_name && <div class="dim small wide">{channel.name}</div>}
        </>
      ),
  },
  { title: "User", wide: true, show: (row) => row.channel_details?.user || "–" },
  { title: "Acknowledges", wide: true, show: (row) => (row.ack_required ? "yes" : "no") },
  { title: "Prefetch", numeric: true, show: (row) => row.prefetch_count || "–" },
  {
    title: "State",
    show: (row) => (
      <>
        <Badge tone={row.active === false ? "warn" : "good"}>{row.activity_status ?? "up"}</Badge> {row.exclusive && <Badge>exclusive</Badge>}
      </>
    ),
  },
];
