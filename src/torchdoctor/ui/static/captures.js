"use strict";
/* What lies beside a run's record: asked for when it comes into view, and again when somebody comes back to the page. */
(() => {
  const page = document.getElementById("run");
  const section = document.getElementById("captures");
  const address = `${page.dataset.place ?? ""}/api/run/${encodeURIComponent(page.dataset.name)}/captures`;
  const link = linked(() => {});
  const SPACING = 3000; /* milliseconds between two looks while the run goes on */
  let stamp = "";
  let asked = 0;
  let asking = false;

  const seen = new IntersectionObserver((entries) => {
    for (const { target, isIntersecting } of entries) {
      if (!isIntersecting) continue;
      seen.unobserve(target);
      if (target.matches(".chart")) preview(target);
      else if (!asked) ask();
    }
  }, { rootMargin: "300px" });

  async function ask() {
    if (asking) return;
    asking = true;
    asked = Date.now();
    try {
      const answer = await fetch(`${address}?${new URLSearchParams({ since: stamp })}`, { signal: AbortSignal.timeout(30000) });
      const found = answer.ok ? await answer.json() : {};
      if (found.parts) take(found);
    } catch { /* the page's own script says that the server is gone */ }
    asking = false;
  }

  function take(found) {
    stamp = found.stamp;
    section.hidden = !found.any;
    for (const [name, html] of Object.entries(found.parts)) renew(page.querySelector(`[data-kept=${name}]`), html);
  }

  function renew(part, html) {
    if (part.dataset.html === html) return;
    part.dataset.html = html;
    const fresh = document.createElement("template");
    fresh.innerHTML = html; /* made and escaped by our own server */
    const drawn = new Map([...part.querySelectorAll(".chart")].map((place) => [place.dataset.chart, place]));
    for (const place of fresh.content.querySelectorAll(".chart")) {
      const old = drawn.get(place.dataset.chart);
      if (old) { place.replaceWith(old); drawn.delete(place.dataset.chart); }
      else seen.observe(place);
    }
    for (const place of drawn.values()) link.forget(place);
    const open = new Map([...part.querySelectorAll("details[data-key]")].map((detail) => [detail.dataset.key, detail.open]));
    for (const detail of fresh.content.querySelectorAll("details[data-key]")) {
      if (open.has(detail.dataset.key)) detail.open = open.get(detail.dataset.key);
    }
    part.replaceChildren(fresh.content);
  }

  async function preview(place) {
    const capture = place.dataset.chart.replace(/^captured-/, "");
    try {
      const answer = await fetch(`${address}/${encodeURIComponent(capture)}`, { signal: AbortSignal.timeout(30000) });
      const found = await answer.json();
      if (!found.chart) throw new Error(found.problem ?? "it cannot be read");
      place.style.height = `${found.chart.layout.height ?? 300}px`;
      await link.draw(place, found.chart);
    } catch (error) {
      const said = document.createElement("p");
      said.className = "quiet";
      said.textContent = `No picture of the batch: ${error.message}.`;
      place.replaceWith(said);
    }
  }

  for (const part of page.querySelectorAll("#captures, [data-kept=preflight]")) seen.observe(part);
  /* While the run goes on there may be more of them. */
  new MutationObserver(() => {
    if (asked && !document.hidden && Date.now() - asked > SPACING) ask();
  }).observe(page, { attributes: true, attributeFilter: ["data-stamp"] });
  window.addEventListener("focus", () => { if (asked) ask(); });
  charting.dark.addEventListener("change", () => link.redraw());
})();
