import type { JSX } from "preact";
import { useState } from "preact/hooks";

import { reasonText } from "../deadletters";
import { bytes } from "../format";
import { cellText, columnsOf, headerNames, headersOf, lastDeath } from "../messagecolumns";
import { CopyButton } from "../parts/copy";
import type { Message } from "../types";

/** Messages as rows, their headers as columns: what dead letters have in common is seen at a glance. */
export function MessageTable({ messages, first, onOpen }: { messages: Message[]; first: number; onOpen: (number: number) => void }): JSX.Element {
  const [chosen, setChosen] = useState<string[] | null>(null);
  const names = headerNames(messages);
  const columns = columnsOf(names, chosen);
  const haveDied = messages.some((message) => lastDeath(message) !== null);
  function turn(name: string): void {
    setChosen(columns.includes(name) ? columns.filter((each) => each !== name) : [...columns, name]);
  }
  return (
    <>
      {names.length > 0 && (
        <fieldset class="choices">
          <legend>Headers as columns</legend>
          {names.map((name) => (
            <label key={name}>
              <input type="checkbox" checked={columns.includes(name)} onChange={() => turn(name)} /> {name}
            </label>
          ))}
        </fieldset>
      )}
      <div class="scroll tabled" tabIndex={0} role="region" aria-label="Messages as a table">
        <table>
          <thead>
            <tr>
              <th scope="col" class="num">#</th>
              <th scope="col">Routing key</th>
              {haveDied && <th scope="col">Died</th>}
              {columns.map((name) => (
                <th scope="col" key={name}>{name}</th>
              ))}
              <th scope="col" class="num">Size</th>
              <th class="copy-cell">
                <CopyButton label="Messages" rows={messages} isSmall />
              </th>
            </tr>
          </thead>
          <tbody>
            {messages.map((message, i) => {
              const death = lastDeath(message);
              return (
                <tr key={i}>
                  <td class="num">
                    <button type="button" class="quiet" aria-label={`Message ${first + i}`} onClick={() => onOpen(first + i)}>
                      {first + i}
                    </button>
                  </td>
                  <td>
                    <code>{message.routing_key}</code>
                  </td>
                  {haveDied && <td>{death && `${reasonText(death.reason)} in ${death.queue}`}</td>}
                  {columns.map((name) => (
                    <td key={name}>{cellText(headersOf(message)[name])}</td>
                  ))}
                  <td class="num">{bytes(message.payload_bytes)}</td>
                  <td class="copy-cell" />
                </tr>
              );
            })}
          </tbody>
        </table>
      </div>
    </>
  );
}
