import type { JSX } from "preact";
import { useState } from "preact/hooks";

import { ApiFailure, logIn, wasEnded } from "../api";
import { Field, Text } from "../parts/forms";

export function LoginPage(): JSX.Element {
  const [name, setName] = useState("");
  const [password, setPassword] = useState("");
  const [wrong, setWrong] = useState<string | null>(null);
  const [isBusy, setBusy] = useState(false);
  async function enter(event: Event): Promise<void> {
    event.preventDefault();
    setBusy(true);
    setWrong(null);
    try {
      await logIn(name, password);
    } catch (error) {
      const failure = error as ApiFailure;
      const hint = name === "guest" ? " The user guest may log in from the node's own machine only." : "";
      setWrong(failure.message === "Not management user" ? "This user has no tag that opens the web UI." : failure.status === 401 ? `That name and password do not fit.${hint}` : failure.message);
      setBusy(false);
    }
  }
  return (
    <main class="login" id="main">
      <form onSubmit={(event) => void enter(event)}>
        <img src="./warren.svg" width="56" height="56" alt="" />
        <h1>Warren</h1>
        {wasEnded.value && !wrong && (
          <div class="notice warn" role="status">
            Your session has ended. Log in to go on where you were.
          </div>
        )}
        <Field label="User">
          <Text name="username" autocomplete="username" value={name} onChange={setName} required />
        </Field>
        <Field label="Password">
          <Text name="password" type="password" autocomplete="current-password" value={password} onChange={setPassword} required />
        </Field>
        {wrong && (
          <div class="notice bad" role="alert">
            {wrong}
          </div>
        )}
        <button type="submit" class="primary" disabled={isBusy}>
          {isBusy ? "…" : "Log in"}
        </button>
      </form>
    </main>
  );
}
