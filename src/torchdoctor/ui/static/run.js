"use strict";
/* A run's page: asks for what is visible, one request at a time, and renews only what has changed. */
(() => {
  const page = document.getElementById("run");
  const address = `${page.dataset.place}/api/run/${encodeURIComponent(page.dataset.name)}`;
  const status = document.getElementById("status");
  const panel = document.getElementById("layer");
  const spoken = document.getElementById("spoken");
  const visible = new Set();
  const stale = new Set(); /* drawn once, out of date since: drawn again when they come into view */
  const absent = new Set(); /* of which there is nothing to draw, so far */
  const wholes = new WeakMap(); /* place -> the state of which all its steps were drawn */
  const heard = new Set();
  const LAYER = ["layer-gradient", "layer-update", "layer-activation", "layer-weight-distribution", "layer-gradient-distribution", "layer-activation-distribution"];
  const PATIENCE = 500; /* milliseconds that charts wait for the verdict */
  let tags = []; /* of the parts that are shown */
  let layer = null;
  let live = true;
  let failures = 0;
  let asking = false;
  let timer = 0;
  let first = true; /* no verdict came yet: what stands when the page is opened is no news */

  const link = linked((range) => {
    for (const [place, chart] of link.drawn) {
      if (!link.overSteps(chart)) continue;
      if (range || wholes.get(place) !== page.dataset.stamp) stale.add(place);
      else stale.delete(place);
    }
    if ([...visible].some((place) => stale.has(place))) soon(120);
  });

  const seen = new IntersectionObserver((entries) => {
    let news = false;
    for (const { target, isIntersecting } of entries) {
      if (isIntersecting) visible.add(target);
      else visible.delete(target);
      news ||= isIntersecting && (!target.dataset.drawn || stale.has(target));
    }
    if (news) soon(0);
  }, { rootMargin: "300px" });

  const observe = (root) => root.querySelectorAll(".chart").forEach((place) => {
    place.tabIndex = 0; /* those that are not drawn yet, too: the focus brings them into view */
    seen.observe(place);
  });

  /* A new state of a part: charts, open details and the focus stay what they are. */
  function renew(part, html) {
    if (part.dataset.html === html) return;
    part.dataset.html = html;
    const fresh = document.createElement("template");
    fresh.innerHTML = html; /* made and escaped by our own server */
    const charts = new Map([...part.querySelectorAll(".chart")].map((place) => [place.dataset.chart, place]));
    const open = new Map([...part.querySelectorAll("details[data-key]")].map((d) => [d.dataset.key, d.open]));
    const focused = part.contains(document.activeElement) ? document.activeElement : null;
    for (const place of fresh.content.querySelectorAll(".chart")) {
      const old = charts.get(place.dataset.chart);
      if (old) { place.replaceWith(old); charts.delete(place.dataset.chart); }
    }
    for (const detail of fresh.content.querySelectorAll("details[data-key]")) {
      if (open.has(detail.dataset.key)) detail.open = open.get(detail.dataset.key);
    }
    for (const place of charts.values()) { seen.unobserve(place); visible.delete(place); link.forget(place); }
    part.replaceChildren(fresh.content);
    observe(part);
    if (focused) {
      const same = focused.isConnected ? focused : focused.dataset.layer !== undefined
        ? [...part.querySelectorAll(".layer")].find((b) => b.dataset.layer === focused.dataset.layer)
        : [...part.querySelectorAll(focused.tagName)].find((e) => e.textContent === focused.textContent);
      same?.focus({ preventScroll: true });
    }
    markLayer();
  }

  function take(found) {
    page.dataset.stamp = found.stamp;
    live = found.running || found.pending;
    status.textContent = found.status;
    status.classList.toggle("live", found.running);
    if (found.captures) document.getElementById("captures").hidden = false; /* comes into view, and is asked for */
    if (found.figures) renew(page.querySelector("[data-part=figures]"), found.figures);
    if (found.severity) document.getElementById("verdict").className = `verdict ${found.severity}`;
    if (found.failed) page.querySelector("[data-part=verdict]").textContent = found.failed;
    for (const [name, html] of Object.entries(found.parts ?? {})) renew(page.querySelector(`[data-part=${name}]`), html);
    if (found.tags) tags = Object.values(found.tags);
    if (found.parts) page.querySelectorAll(".after").forEach((section) => { section.hidden = false; });
    if (found.heard) announce(found.heard);
    if (found.parts) requestAnimationFrame(() => setTimeout(plotly.load)); /* when that is painted */
  }

  function announce(lines) {
    const fresh = lines.filter((line) => !heard.has(line.replace(/[\d.,%]+/g, "#")));
    lines.forEach((line) => heard.add(line.replace(/[\d.,%]+/g, "#")));
    if (fresh.length && !first) spoken.textContent = `New finding. ${fresh.join(". ")}`;
    first = false;
  }

  function paint(charts, range) {
    for (const place of document.querySelectorAll(".chart")) {
      const chart = charts[place.dataset.chart];
      if (chart === undefined) continue;
      const figure = place.closest("figure") ?? place;
      if (chart === null) {
        figure.hidden = true;
        absent.add(place);
        link.forget(place);
      } else if (String(range) === String(link.range)) { /* else zoomed meanwhile: the next answer fits */
        figure.hidden = false;
        absent.delete(place);
        stale.delete(place);
        if (!range) wholes.set(place, page.dataset.stamp);
        link.draw(place, chart);
      }
    }
  }

  async function ask() {
    if (asking || document.hidden) return;
    clearTimeout(timer);
    asking = true;
    const range = link.range;
    /* What is not there yet comes alone; while all is there, whatever is visible comes with the next news. */
    const missing = [...visible].filter((place) => !place.dataset.drawn || stale.has(place));
    for (const place of absent) if (!place.isConnected) absent.delete(place);
    const wanted = [...new Set((missing.length ? missing : [...visible, ...absent]).map((place) => place.dataset.chart))];
    const query = new URLSearchParams({ since: page.dataset.stamp, charts: wanted.join(","), hold: missing.length ? "0" : "1" });
    if (range) { query.set("first", String(range[0])); query.set("last", String(range[1])); }
    if (layer !== null) query.set("layer", layer);
    if (tags.length) query.set("have", tags.join(","));
    let pause = 150;
    try {
      const answer = await fetch(`${address}?${query}`, { signal: AbortSignal.timeout(30000) });
      if (answer.status === 404) throw new Error("gone");
      if (answer.status === 403) throw new Error("lost");
      if (!answer.ok) throw new Error(String(answer.status));
      const found = await answer.json();
      if (found.stamp !== undefined) {
        const changed = found.stamp !== page.dataset.stamp;
        take(found);
        if (changed) for (const place of link.drawn.keys()) stale.add(place);
        paint(found.charts, range);
      }
      failures = 0;
      pause = live ? 150 : -1;
    } catch (error) {
      failures += 1;
      pause = Math.min(1000 * 2 ** failures, 30000);
      status.textContent = { gone: "This run is no longer there.", lost: "The server was started anew: open the address that it printed." }[error.message] ?? `The server does not answer; the page is as it was. Asking again in ${pause / 1000} s.`;
    }
    asking = false;
    if ([...visible].some((place) => !failures && place.isConnected && (!place.dataset.drawn || stale.has(place)) && !(place.closest("figure") ?? place).hidden)) pause = 20;
    if (pause >= 0) soon(pause);
  }

  function soon(milliseconds) {
    clearTimeout(timer);
    timer = setTimeout(ask, milliseconds);
  }

  function markLayer() {
    for (const button of page.querySelectorAll(".layer")) {
      button.setAttribute("aria-pressed", String(button.dataset.layer === layer));
    }
  }

  function showLayer(name) {
    layer = name;
    for (const place of panel.querySelectorAll(".chart")) { seen.unobserve(place); visible.delete(place); link.forget(place); }
    const heading = document.createElement("h3");
    heading.textContent = name || "the model";
    panel.replaceChildren(heading);
    spoken.textContent = `Charts of ${heading.textContent}`;
    for (const chart of LAYER) {
      const figure = document.createElement("figure");
      const place = document.createElement("div");
      place.className = "chart small";
      place.dataset.chart = chart;
      place.setAttribute("role", "img");
      figure.append(place);
      panel.append(figure);
    }
    observe(panel);
    markLayer();
    if (window.innerWidth < 900) panel.scrollIntoView({ block: "nearest" });
  }

  page.addEventListener("click", (event) => {
    const button = event.target.closest(".layer");
    if (button) showLayer(button.dataset.layer);
  });
  document.addEventListener("visibilitychange", () => soon(0));
  charting.dark.addEventListener("change", () => link.redraw());
  charting.onPaper(() => link.drawn.keys());
  observe(document);
  const begun = JSON.parse(document.getElementById("begun").textContent); /* what came with the page */
  page.dataset.stamp = begun.stamp;
  paint(begun.charts, null);
  /* The verdict comes first if it comes soon: the loss can be seen already. */
  if (begun.concluded) plotly.load();
  else setTimeout(plotly.load, PATIENCE);
  soon(0);
})();
