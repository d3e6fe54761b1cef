// Tables as text for other programs, and the way to the clipboard.

export type Format = "csv" | "tsv" | "json";

export const FORMATS: [Format, string][] = [
  ["csv", "CSV"],
  ["tsv", "TSV"],
  ["json", "JSON"],
];

const flat = (text: string) => text.replace(/\s+/g, " ").trim();

/** Rows of a table as text that spreadsheets read. */
export function csv(rows: string[][]): string {
  const cell = (text: string) => (/[",]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text);
  return rows.map((row) => row.map((text) => cell(flat(text))).join(",")).join("\n");
}

/** The same with tabs in between, as terminals and spreadsheets take it when it is pasted. */
export function tsv(rows: string[][]): string {
  return rows.map((row) => row.map(flat).join("\t")).join("\n");
}

/** What is copied: cells as they are shown, or the rows as the API has them. */
export function asText(format: Format, cells: string[][], rows: unknown[]): string {
  if (format === "json") return JSON.stringify(rows, null, 2);
  return format === "csv" ? csv(cells) : tsv(cells);
}

/** The cells of a table, without boxes to mark rows and buttons to act on them. */
export function cellsOf(table: HTMLTableElement): string[][] {
  const isData = (cell: HTMLElement) => !/\b(mark|row-end|copy-cell)\b/.test(cell.className);
  return [...table.querySelectorAll<HTMLTableRowElement>("thead tr, tbody tr:not(.inner)")].map((row) => [...row.cells].filter(isData).map((cell) => cell.innerText));
}

/** Browsers give the clipboard to pages of https and of this machine only; elsewhere the old way is left. */
export async function copyText(text: string): Promise<void> {
  if (navigator.clipboard) return navigator.clipboard.writeText(text);
  const box = document.createElement("textarea");
  box.value = text;
  // Inside a dialog: all else is out of reach while one is open.
  (document.querySelector("dialog[open]") ?? document.body).append(box);
  const had = document.activeElement as HTMLElement | null;
  box.select();
  const isDone = document.execCommand("copy");
  box.remove();
  had?.focus();
  if (!isDone) throw new Error("The browser does not let this page copy.");
}
