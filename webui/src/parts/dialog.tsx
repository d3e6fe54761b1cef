// Dialogs and messages. Nothing is destroyed without a dialog that says what will be.

import { signal } from "@preact/signals";
import type { ComponentChildren, JSX } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";

import { Command } from "./small";

export interface Question {
  title: string;
  /** What will happen, in full. */
  body: ComponentChildren;
  /** The word on the button: a verb. */
  verb: string;
  /** Must be typed before the button works. */
  typed?: string;
  /** The same from a terminal. */
  command?: string;
  isHarmless?: boolean;
  run: () => Promise<unknown>;
  /** What is to be read of how it went before the dialog goes; null: nothing. */
  outcome?: (result: unknown) => ComponentChildren | null;
  done?: string;
}

interface Message {
  id: number;
  text: string;
  tone: "good" | "bad";
}

const question = signal<Question | null>(null);
export const messages = signal<Message[]>([]);
let counter = 0;

export function ask(asked: Question): void {
  question.value = asked;
}

export function say(text: string, tone: "good" | "bad" = "good"): void {
  counter += 1;
  const id = counter;
  messages.value = [...messages.value.slice(-3), { id, text, tone }];
  if (tone === "good") setTimeout(() => dismiss(id), 6000);
}

function dismiss(id: number): void {
  messages.value = messages.value.filter((message) => message.id !== id);
}

/** Does something and says how it went; whether it went well. */
export async function attempt(run: () => Promise<unknown>, done?: string): Promise<boolean> {
  try {
    await run();
    if (done) say(done);
    return true;
  } catch (error) {
    say(error instanceof Error ? error.message : String(error), "bad");
    return false;
  }
}

function Asked({ asked }: { asked: Question }): JSX.Element {
  const box = useRef<HTMLDialogElement>(null);
  const [typed, setTyped] = useState("");
  const [isBusy, setBusy] = useState(false);
  const [failed, setFailed] = useState<string | null>(null);
  const [told, setTold] = useState<ComponentChildren | null>(null);
  useEffect(() => {
    box.current?.showModal();
    // To what has to be typed, whatever stands before it.
    box.current?.querySelector<HTMLElement>("label.field input")?.focus();
  }, []);

  async function confirm(event: Event): Promise<void> {
    event.preventDefault();
    setBusy(true);
    setFailed(null);
    try {
      const result = await asked.run();
      const read = asked.outcome?.(result) ?? null;
      setTold(read);
      if (read !== null) return;
      if (asked.done) say(asked.done);
      question.value = null;
    } catch (error) {
      setFailed(error instanceof Error ? error.message : String(error));
      setBusy(false);
    }
  }

  if (told !== null) {
    return (
      <dialog ref={box} aria-labelledby="asked" onClose={() => (question.value = null)}>
        <h2 id="asked">{asked.title}</h2>
        <div class="dialog-body">{told}</div>
        <div class="dialog-foot">
          <button type="button" class="primary" onClick={() => (question.value = null)}>
            Close
          </button>
        </div>
      </dialog>
    );
  }
  const isReady = !isBusy && (asked.typed === undefined || typed === asked.typed);
  return (
    <dialog ref={box} aria-labelledby="asked" onClose={() => (question.value = null)}>
      <form onSubmit={(event) => void confirm(event)}>
        <h2 id="asked">{asked.title}</h2>
        <div class="dialog-body">{asked.body}</div>
        {asked.typed !== undefined && (
          <label class="field">
            <span>
              Type <code>{asked.typed}</code> to go on
            </span>
            <input
              value={typed}
              autocomplete="off"
              spellcheck={false}
              onInput={(event) => setTyped(event.currentTarget.value)}
            />
          </label>
        )}
        {asked.command && (
          <p class="same">
            The same from a terminal: <Command text={asked.command} />
          </p>
        )}
        {failed && (
          <div class="notice bad" role="alert">
            {failed}
          </div>
        )}
        <div class="dialog-foot">
          <button type="button" onClick={() => (question.value = null)}>
            Cancel
          </button>
          <button type="submit" class={asked.isHarmless ? "primary" : "danger"} disabled={!isReady}>
            {isBusy ? "Working …" : asked.verb}
          </button>
        </div>
      </form>
    </dialog>
  );
}

export function Dialogs(): JSX.Element {
  return (
    <>
      {question.value && <Asked key={question.value.title} asked={question.value} />}
      <div class="messages" role="status" aria-live="polite">
        {messages.value.map((message) => (
          <div key={message.id} class={`message ${message.tone}`}>
            <span>{message.text}</span>
            <button type="button" class="quiet" aria-label="Dismiss" onClick={() => dismiss(message.id)}>
              ✕
            </button>
          </div>
        ))}
      </div>
    </>
  );
}
