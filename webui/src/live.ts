// Data that is asked for again and again while somebody looks at it.

import { signal } from "@preact/signals";
import { useCallback, useEffect, useRef, useState } from "preact/hooks";

import { ApiFailure, get, session } from "./api";

export const paused = signal(false);
export const EVERY_MS = 5000;

export interface Live<T> {
  data: T | null;
  error: ApiFailure | null;
  /** Whether what is shown is of another question than the last one. */
  isStale: boolean;
  refresh: () => void;
}

interface Held<T> {
  path: string | null;
  data: T | null;
  error: ApiFailure | null;
}

export function useLive<T>(path: string | null, everyMs: number = EVERY_MS): Live<T> {
  const [held, setHeld] = useState<Held<T>>({ path: null, data: null, error: null });
  const [turn, setTurn] = useState(0);
  const refresh = useCallback(() => setTurn((before) => before + 1), []);
  const isForced = useRef(true);
  const token = session.value?.token;

  useEffect(() => {
    isForced.current = true;
  }, [path, turn]);

  useEffect(() => {
    if (path === null || !token) return undefined;
    const abort = new AbortController();
    let timer: ReturnType<typeof setTimeout> | undefined;

    async function ask(): Promise<void> {
      const isDue = isForced.current || (!paused.value && !document.hidden);
      if (isDue) {
        isForced.current = false;
        try {
          const data = await get<T>(path as string, abort.signal);
          if (!abort.signal.aborted) setHeld({ path, data, error: null });
        } catch (error) {
          if (abort.signal.aborted) return;
          const failure = error instanceof ApiFailure ? error : new ApiFailure(0, String(error));
          // A node that is away for a moment leaves what was last seen on the page.
          setHeld((before) => ({ path, data: failure.status === 0 ? before.data : null, error: failure }));
        }
      }
      if (!abort.signal.aborted && everyMs > 0) timer = setTimeout(() => void ask(), everyMs);
    }

    function onShown(): void {
      if (!document.hidden && !paused.value) refresh();
    }

    void ask();
    document.addEventListener("visibilitychange", onShown);
    return () => {
      abort.abort();
      clearTimeout(timer);
      document.removeEventListener("visibilitychange", onShown);
    };
  }, [path, turn, everyMs, token, refresh]);

  return { data: held.data, error: held.error, isStale: held.path !== path, refresh };
}
