// The parts of the API's objects that pages read. Fields may be missing: nodes differ in version.

import type { Details } from "./samples";

export type Stats = Record<string, number | Details>;

export interface Queue {
  name: string;
  vhost: string;
  node?: string;
  state?: string;
  durable?: boolean;
  auto_delete?: boolean;
  exclusive?: boolean;
  arguments?: Record<string, unknown>;
  policy?: string | null;
  operator_policy?: string | null;
  effective_policy_definition?: Record<string, unknown>;
  messages?: number;
  messages_ready?: number;
  messages_unacknowledged?: number;
  message_bytes?: number;
  consumers?: number;
  memory?: number;
  idle_since?: string;
  message_stats?: Stats;
  slave_nodes?: string[];
  synchronised_slave_nodes?: string[];
  mirror_nodes?: string[];
  synchronised_mirror_nodes?: string[];
  sync_messages?: number;
  consumer_details?: Consumer[];
  damage?: string;
  head_message_timestamp?: number | null;
  oldest_message_arrived_at?: number | null;
  oldest_message_age_seconds?: number | null;
  paused?: boolean;
  paused_by?: string;
  paused_at?: number;
}

export interface ChannelDetails {
  connection_name?: string;
  /** What the client calls itself. */
  user_provided_name?: string;
  name?: string;
  node?: string;
  peer_host?: string;
  peer_port?: number;
  user?: string;
}

export interface Consumer {
  consumer_tag: string;
  queue?: { name: string; vhost: string };
  ack_required?: boolean;
  exclusive?: boolean;
  prefetch_count?: number;
  active?: boolean;
  activity_status?: string;
  arguments?: Record<string, unknown>;
  channel_details?: ChannelDetails;
}

export interface Sync {
  done: number;
  total: number;
  bytes_done?: number;
  messages_per_second?: number;
  bytes_per_second?: number;
  eta_seconds?: number | null;
}

export interface Replica {
  node: string;
  role: string;
  synchronised: boolean;
  online?: boolean;
  position?: number | null;
  applied?: number | null;
  lacks_messages?: number | null;
  lag_messages?: number | null;
  lag_bytes?: number | null;
  lag_seconds?: number | null;
  since?: number | null;
  sync?: Sync | null;
}

export interface Mirrors {
  state?: string;
  master?: string | null;
  epoch?: number;
  wanted?: string[];
  min_in_sync?: number;
  commit?: number;
  last?: number;
  replicas: Replica[];
  explain?: string[];
}

export interface NodeInfo {
  name: string;
  running: boolean;
  type?: string;
  mem_used?: number;
  mem_limit?: number;
  mem_alarm?: boolean;
  disk_free?: number;
  disk_free_limit?: number;
  disk_free_alarm?: boolean;
  fd_used?: number;
  fd_total?: number;
  sockets_used?: number;
  uptime?: number;
  os_pid?: string;
  processors?: number;
  partitions?: string[];
  db_dir?: string;
  [more: string]: unknown;
}

export interface ClusterStatus {
  node: string;
  cluster_name: string;
  app_running: boolean;
  nodes: { name: string; running: boolean; type: string; role: string; version: string; runtime?: string; cpu_cores?: number; alarms?: string[] }[];
  partitions: Record<string, string[]>;
  /** Of a try-out: how a node is started again, with {node} for its name. */
  try_out?: string | null;
}

export interface Policy {
  vhost: string;
  name: string;
  pattern: string;
  "apply-to": string;
  definition: Record<string, unknown>;
  priority: number;
}

export interface Binding {
  source: string;
  vhost: string;
  destination: string;
  destination_type: "queue" | "exchange";
  routing_key: string;
  arguments: Record<string, unknown>;
  properties_key: string;
}

export interface Exchange {
  name: string;
  vhost: string;
  type: string;
  durable: boolean;
  auto_delete: boolean;
  internal: boolean;
  arguments: Record<string, unknown>;
  policy?: string;
  message_stats?: Stats;
}

export interface Message {
  payload: string;
  payload_encoding: string;
  payload_bytes: number;
  exchange: string;
  routing_key: string;
  redelivered: boolean;
  message_count?: number;
  slot?: number;
  properties: Record<string, unknown> | [];
}

export interface ClusterEvent {
  id: number;
  timestamp: number;
  event: string;
  details: Record<string, unknown>;
  /** The node that told of it, where it is not the one that was asked. */
  seen_by?: string;
}
