// Exchanges the parts of a page that have changed. Without it, the page shows them after a reload.
"use strict";
(() => {
  const address = document.body.dataset.events;
  const say = document.getElementById("live");
  let stream = null;
  let busy = false;
  let again = false;

  const tell = (text, on) => {
    if (!say || say.textContent === text) return;
    say.textContent = text;
    say.className = on ? "live-on" : "live-off";
  };

  // The parts have ids, and so has what can have the focus or be open in them.
  const exchange = (text) => {
    const fresh = new DOMParser().parseFromString(text, "text/html");
    const focused = document.activeElement && document.activeElement.id;
    for (const part of document.querySelectorAll("[data-live]")) {
      const next = fresh.getElementById(part.id);
      if (!next || next.innerHTML === part.innerHTML) continue;
      const before = new Map();
      for (const row of part.querySelectorAll("tr[id]")) before.set(row.id, row.dataset.version);
      const open = [...part.querySelectorAll("details[open][id]")].map((d) => d.id);
      part.replaceChildren(...next.childNodes);
      for (const row of part.querySelectorAll("tr[id]")) {
        if (before.get(row.id) !== row.dataset.version) row.classList.add("changed");
      }
      for (const id of open) {
        const details = document.getElementById(id);
        if (details) details.open = true;
      }
    }
    const back = focused && document.getElementById(focused);
    if (back && back !== document.activeElement) back.focus({ preventScroll: true });
  };

  const refresh = async () => {
    if (busy) { again = true; return; }
    busy = true;
    try {
      const answer = await fetch(location.href, { credentials: "same-origin", cache: "no-store" });
      if (answer.ok) exchange(await answer.text());
      else tell("It cannot be read any longer. Reload the page to see why.", false);
    } catch {
      tell("Not connected: kubectl cleaner ui has ended.", false);
    }
    busy = false;
    if (again) { again = false; refresh(); }
  };

  const connect = () => {
    if (stream || !address || document.hidden) return;
    stream = new EventSource(address);
    stream.addEventListener("live", (event) => {
      if (event.data === "true") tell("Live", true);
      else tell("Not live: reload the page to see changes.", false);
    });
    stream.addEventListener("change", refresh);
    stream.addEventListener("error", (event) => {
      tell("Not connected: kubectl cleaner ui has ended, or is busy.", false);
      // Browsers connect again after a connection ends, but not after an answer that is no stream.
      if (event.target.readyState !== EventSource.CLOSED) return;
      stream = null;
      setTimeout(connect, 10000);
    });
  };

  // Browsers allow few connections: pages that are not looked at need none.
  document.addEventListener("visibilitychange", () => {
    if (!document.hidden) { connect(); return; }
    if (stream) { stream.close(); stream = null; }
  });
  connect();

  // How far away a time is changes by itself. What somebody has selected to copy it stays.
  setInterval(() => { if (stream && getSelection().isCollapsed) refresh(); }, 60000);
})();
