// Which columns of a list are shown: what the list shows by itself, and what this browser's user has chosen.

import { signal } from "@preact/signals";

export interface Choosable {
  title: string;
  /** Not shown until somebody wants it. */
  hidden?: boolean;
  /** Fields of the API that only this column needs. */
  fields?: string[];
}

export type Choices = Record<string, boolean>;

const KEPT_AS = "warren.columns";
const chosen = signal<Record<string, Choices>>(read());

function read(): Record<string, Choices> {
  try {
    const kept: unknown = JSON.parse(localStorage.getItem(KEPT_AS) ?? "{}");
    return typeof kept === "object" && kept !== null ? (kept as Record<string, Choices>) : {};
  } catch {
    return {};
  }
}

export function choicesOf(list: string): Choices {
  return chosen.value[list] ?? {};
}

/** null: as the list is by itself. */
export function choose(list: string, choices: Choices | null): void {
  const next = { ...chosen.value };
  if (choices === null) delete next[list];
  else next[list] = choices;
  chosen.value = next;
  try {
    localStorage.setItem(KEPT_AS, JSON.stringify(next));
  } catch {
    // It holds until the page is left.
  }
}

export function isShown(column: Choosable, choices: Choices): boolean {
  return choices[column.title] ?? !column.hidden;
}

/** The first column says what a row is: it stays. */
export function shownColumns<Column extends Choosable>(columns: Column[], choices: Choices): Column[] {
  return columns.filter((column, i) => i === 0 || isShown(column, choices));
}

/** What to ask the API for: the list's own fields, and those of the columns that are shown. */
export function fieldsOf(own: string[], columns: Choosable[]): string[] {
  return own.length === 0 ? [] : [...new Set([...own, ...columns.flatMap((column) => column.fields ?? [])])];
}
