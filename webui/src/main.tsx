import { render } from "preact";

import { watchSession } from "./api";
import { App } from "./app";
import { watchPlace } from "./router";
import { startKeeping } from "./state";
import "./style.css";

startKeeping();
watchSession();
watchPlace();
render(<App />, document.getElementById("app")!);
