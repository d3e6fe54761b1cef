import type { JSX } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";

import { get, quote } from "../api";
import { shortNode } from "../format";
import { paused, useLive } from "../live";
import { Choice } from "../parts/forms";
import { PageHead, Panel } from "../parts/small";
import { place, setQuery } from "../router";
import type { ClusterStatus } from "../types";

interface Line {
  id: number;
  time: string;
  level: string;
  domain: string;
  msg: string;
  error?: string;
  [more: string]: unknown;
}

const LINES_MAX = 1000;
const LEVELS = ["debug", "info", "notice", "warning", "error"];
const CATEGORIES = ["", "connection", "channel", "queue", "mirroring", "cluster", "store", "management"];

export function LogPage(): JSX.Element {
  const query = place.value.query;
  const status = useLive<ClusterStatus>("warren/cluster/status", 30000);
  const node = query.get("node") ?? status.data?.node ?? "";
  const level = query.get("level") ?? "info";
  const category = query.get("category") ?? "";
  const word = query.get("name") ?? "";
  const { lines, failed } = useTail(node, level, category);
  const box = useRef<HTMLDivElement>(null);
  const [isFollowing, setFollowing] = useState(true);
  const shown = word ? lines.filter((line) => `${line.msg} ${line.error ?? ""}`.toLowerCase().includes(word.toLowerCase())) : lines;
  useEffect(() => {
    if (isFollowing && box.current) box.current.scrollTop = box.current.scrollHeight;
  }, [shown.length, isFollowing]);
  return (
    <>
      <PageHead title="Log" sub="The last lines of one node, live. Passwords are blanked before anything is written.">
        <Choice label="Node" value={node} onChange={(next) => setQuery({ node: next })} options={(status.data?.nodes ?? []).filter((each) => each.running).map((each) => [each.name, shortNode(each.name)])} />
        <Choice label="Lowest level" value={level} onChange={(next) => setQuery({ level: next })} options={LEVELS.map((each) => [each, each])} />
        <Choice label="Category" value={category} onChange={(next) => setQuery({ category: next })} options={CATEGORIES.map((each) => [each, each || "all categories"])} />
        <input type="search" class="filter-input" value={word} placeholder="Find  ( / )" aria-label="Only lines with this text" onInput={(event) => setQuery({ name: event.currentTarget.value })} />
      </PageHead>
      {failed && <div class="notice bad">{failed}</div>}
      <Panel>
        <div class="log" ref={box} tabIndex={0} role="log" aria-label={`Log of ${node}`} onScroll={(event) => setFollowing(event.currentTarget.scrollHeight - event.currentTarget.scrollTop - event.currentTarget.clientHeight < 40)}>
          {shown.map((line) => (
            <div key={line.id} class={`log-line ${line.level}`}>
              <time>{line.time?.slice(11, 23)}</time> <span class="log-level">{line.level}</span> <span class="log-domain">{line.domain}</span> <span class="log-text">{line.msg}{rest(line)}</span>
              {line.error && <pre>{line.error}</pre>}
            </div>
          ))}
          {shown.length === 0 && <p class="dim">Nothing at this level yet.</p>}
        </div>
        {!isFollowing && (
          <button type="button" onClick={() => setFollowing(true)}>
            ↓ Follow again
          </button>
        )}
      </Panel>
    </>
  );
}

function rest(line: Line): string {
  const known = new Set(["id", "time", "level", "domain", "msg", "error"]);
  const more = Object.entries(line).filter(([key]) => !known.has(key));
  return more.length ? ` ${more.map(([key, value]) => `${key}=${String(value)}`).join(" ")}` : "";
}

function useTail(node: string, level: string, category: string): { lines: Line[]; failed: string | null } {
  const [lines, setLines] = useState<Line[]>([]);
  const [failed, setFailed] = useState<string | null>(null);
  useEffect(() => {
    setLines([]);
    if (!node) return undefined;
    const abort = new AbortController();
    let last = 0;
    let timer: ReturnType<typeof setTimeout>;
    async function ask(): Promise<void> {
      if (last === 0 || (!paused.value && !document.hidden)) {
        try {
          const query = new URLSearchParams({ since: String(last), level, category });
          const news = await get<{ last: number; lines: Line[] }>(`warren/log/${quote(node)}?${query}`, abort.signal);
          // A node that has restarted counts from the beginning.
          if (news.last < last) setLines([]);
          last = news.last;
          if (news.lines.length) setLines((before) => [...before, ...news.lines].slice(-LINES_MAX));
          setFailed(null);
        } catch (error) {
          if (abort.signal.aborted) return;
          setFailed((error as Error).message);
        }
      }
      if (!abort.signal.aborted) timer = setTimeout(() => void ask(), 2000);
    }
    void ask();
    return () => {
      abort.abort();
      clearTimeout(timer);
    };
  }, [node, level, category]);
  return { lines, failed };
}
