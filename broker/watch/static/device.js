// The page of a device: read again when its files say something else; ages go on in between.

import { ago, byId, listen } from "./common.js";

let version = 1; // of what the page came with

async function again() {
  const answer = await fetch("/device");
  if (!answer.ok) return;
  const page = new DOMParser().parseFromString(await answer.text(), "text/html");
  byId("device").replaceChildren(...page.getElementById("device").childNodes);
}

function ages() {
  for (const age of document.querySelectorAll(".age")) age.textContent = `They are ${ago(Number(age.dataset.at)).replace(" ago", "")} old.`;
}

listen("/events/device", async (view) => {
  if (view.version !== version) {
    version = view.version;
    await again();
  }
  ages();
});
