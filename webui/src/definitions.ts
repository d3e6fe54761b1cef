// What is in a file of definitions, before it is sent.

const PARTS: [string, string][] = [
  ["users", "users"],
  ["vhosts", "virtual hosts"],
  ["permissions", "permissions"],
  ["topic_permissions", "topic permissions"],
  ["policies", "policies"],
  ["parameters", "parameters"],
  ["global_parameters", "global parameters"],
  ["queues", "queues"],
  ["exchanges", "exchanges"],
  ["bindings", "bindings"],
];

export interface Summary {
  parts: [string, number][];
  origin: string;
}

/** Raises an error that says what is wrong with the file. */
export function summary(text: string): Summary {
  let file: Record<string, unknown>;
  try {
    file = JSON.parse(text) as Record<string, unknown>;
  } catch (error) {
    throw new Error(`This is not JSON: ${(error as Error).message}`);
  }
  if (typeof file !== "object" || file === null || Array.isArray(file)) throw new Error("This is not a file of definitions: it holds no object.");
  const parts = PARTS.filter(([key]) => Array.isArray(file[key]) && (file[key] as unknown[]).length > 0).map(([key, title]) => [title, (file[key] as unknown[]).length] as [string, number]);
  if (parts.length === 0) throw new Error("There are no definitions in this file.");
  const product = [file.product_name, file.product_version ?? file.rabbit_version].filter((each) => each).join(" ");
  return { parts, origin: product || "an unknown broker" };
}
