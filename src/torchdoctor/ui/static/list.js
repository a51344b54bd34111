"use strict";
/* The list: search, a choice of two to compare, and lines that fill in as runs are examined. */
(() => {
  const rows = document.getElementById("rows");
  const search = document.getElementById("search");
  const compare = document.getElementById("compare");
  const told = document.getElementById("told");
  const chosen = [];
  const texts = new WeakMap();
  let failures = 0;
  let asking = false;

  /* What is shown of a run, and what is shown on pointing at it; rows are replaced, never changed. */
  function textOf(row) {
    let text = texts.get(row);
    if (text === undefined) {
      const pointed = [...row.querySelectorAll("[title]")].map((part) => part.title);
      text = [row.textContent, ...pointed].join(" ").toLowerCase();
      texts.set(row, text);
    }
    return text;
  }

  function filter() {
    const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
    let shown = 0;
    for (const row of rows.rows) {
      const text = textOf(row);
      row.hidden = !words.every((word) => text.includes(word));
      shown += row.hidden ? 0 : 1;
    }
    told.textContent = words.length ? `${shown} of ${rows.rows.length} runs` : "";
  }

  function mark() {
    for (const box of rows.querySelectorAll("input")) box.checked = chosen.includes(box.value);
    const ready = chosen.length === 2;
    compare.setAttribute("aria-disabled", String(!ready));
    compare.textContent = ready ? "Compare the two" : chosen.length ? "Choose one more to compare" : "Choose two to compare";
    if (ready) compare.href = `/compare?a=${encodeURIComponent(chosen[0])}&b=${encodeURIComponent(chosen[1])}`;
    else compare.removeAttribute("href");
  }

  function renew(answer) {
    const focused = document.activeElement?.id;
    rows.innerHTML = answer.html; /* made and escaped by our own server */
    rows.dataset.stamp = answer.stamp;
    document.getElementById("none").hidden = answer.count > 0;
    if (focused) document.getElementById(focused)?.focus({ preventScroll: true });
    filter();
    mark();
  }

  async function ask() {
    if (asking || document.hidden) return;
    asking = true;
    try {
      const answer = await fetch(`/api/runs?since=${encodeURIComponent(rows.dataset.stamp)}`, { signal: AbortSignal.timeout(20000) });
      if (answer.status === 403) throw new Error("lost");
      if (!answer.ok) throw new Error(String(answer.status));
      const found = await answer.json();
      if (found.html !== undefined) renew(found);
      rows.dataset.pending = found.pending ? "yes" : "";
      if (failures) filter(); /* says what it said before the failure */
      failures = 0;
    } catch (error) {
      failures += 1;
      told.textContent = error.message === "lost" ? "The server was started anew: open the address that it printed." : "The server does not answer; the list is as it was.";
    }
    asking = false;
    const calm = rows.dataset.pending ? 1000 : 5000;
    setTimeout(ask, Math.min(calm * 2 ** failures, 30000));
  }

  rows.addEventListener("change", (event) => {
    const name = event.target.value;
    const at = chosen.indexOf(name);
    if (at >= 0) chosen.splice(at, 1);
    else chosen.push(name);
    if (chosen.length > 2) chosen.shift();
    mark();
  });
  search.addEventListener("input", filter);
  document.getElementById("tools").addEventListener("submit", (event) => event.preventDefault());
  document.addEventListener("visibilitychange", ask);
  filter(); /* something may have been typed by now */
  mark();
  setTimeout(ask, rows.dataset.pending ? 300 : 5000);
})();
