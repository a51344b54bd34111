"use strict";
/* Plotly's script is large, and while it is read nothing else happens. A page that only preloads it says when. */
const plotly = (() => {
  const preloaded = document.querySelector("link[rel=preload][as=script]");
  let load;
  const wanted = new Promise((resolve) => { load = resolve; });
  const ready = !preloaded ? new Promise((resolve) => {
    if (document.readyState === "complete") resolve();
    else document.addEventListener("DOMContentLoaded", resolve);
  }) : wanted.then(() => new Promise((resolve) => {
    const script = document.createElement("script");
    script.src = preloaded.href;
    script.addEventListener("load", resolve);
    document.head.append(script);
  }));
  return { ready, load };
})();

/* Charts over steps belong together: one cursor, one zoom, and keys for both. The one that somebody acts on is drawn at
   once, the others one after the other, those on the screen first, so that no input waits for more than one of them.

   linked(zoomed) gives {draw, redraw, forget, range}; `zoomed` is called when the visible steps have changed. */
const linked = (zoomed) => {
  /* They are zoomed by dragging and by keys: buttons for it would only be more places for Tab to stop at. */
  const OVER_STEPS = {
    ...charting.config, doubleClick: false,
    modeBarButtonsToRemove: [...charting.config.modeBarButtonsToRemove, "zoomIn2d", "zoomOut2d", "resetScale2d"],
  };
  const drawn = new Map(); /* place -> chart */
  const whole = new Map(); /* place -> the same over all steps, as it was last given */
  const due = new Map(); /* place -> what to call when it is drawn: charts that wait for their turn */
  const spoken = document.getElementById("spoken");
  let range = null; /* [first, last] of the visible steps; null: all */
  let cursor = null;
  let zooms = 0;
  let resets = 0;
  let working = false;

  const near = new Set(); /* on the screen or just beside it */
  const far = new Set(); /* to be drawn again when they come near */
  const seen = new IntersectionObserver((entries) => {
    for (const { target, isIntersecting } of entries) {
      if (isIntersecting) near.add(target);
      else near.delete(target);
      if (isIntersecting && far.delete(target)) later(target);
    }
  }, { rootMargin: "300px" });
  const overSteps = (chart) => chart?.layout?.xaxis?.title?.text === "step";

  function layoutOf(place, chart) {
    const layout = charting.dressed(chart, place.clientWidth);
    layout.uirevision = "kept"; /* what was switched off in a legend stays off */
    if (overSteps(chart)) {
      layout.xaxis = { ...layout.xaxis, ...(range ? { range: [...range], autorange: false } : { autorange: true }) };
      layout.xaxis.uirevision = zooms;
      layout.yaxis = { ...layout.yaxis, uirevision: resets };
    }
    return layout;
  }

  /* Resolves when it stands on the page. */
  async function draw(place, chart) {
    drawn.set(place, chart);
    if (range === null) whole.set(place, chart);
    place.dataset.drawn = "1";
    seen.observe(place);
    await new Promise((resolve) => later(place, resolve));
  }

  function later(place, done) {
    const before = due.get(place);
    due.set(place, () => { before?.(); done?.(); });
    if (working) return;
    working = true;
    plotly.ready.then(work);
  }

  /* One chart a frame, after it was painted: whatever else there is to do comes first. */
  async function work() {
    while (due.size) {
      await new Promise((resolve) => { requestAnimationFrame(() => setTimeout(resolve)); });
      if (!due.size) break; /* forgotten meanwhile */
      const place = nearest([...due.keys()]);
      const done = due.get(place);
      due.delete(place);
      far.delete(place);
      await render(place);
      done();
    }
    working = false;
  }

  function nearest(places) {
    const far = (place) => {
      const { top, bottom } = place.getBoundingClientRect();
      return Math.max(0, -bottom, top - window.innerHeight);
    };
    return places.length < 2 ? places[0] : places.map((place) => [far(place), place]).reduce((a, b) => (b[0] < a[0] ? b : a))[1];
  }

  async function render(place) {
    const chart = drawn.get(place);
    if (!chart || !place.isConnected) return; /* not wanted any more */
    place.querySelector(":scope > .preview")?.remove();
    place.setAttribute("aria-label", chart.title);
    place.classList.toggle("tall", Boolean(chart.tall));
    await Plotly.react(place, chart.data, layoutOf(place, chart), overSteps(chart) ? OVER_STEPS : charting.config);
    listen(place);
    showCursor(place);
  }

  function listen(place) {
    if (!overSteps(drawn.get(place)) || place.querySelector(":scope > .cursor")) return;
    const line = document.createElement("div");
    line.className = "cursor";
    place.append(line);
    place.tabIndex = 0;
    place.setAttribute("role", "application");
    place.setAttribute("aria-roledescription", "chart over steps; arrow keys move the cursor, plus and minus zoom, 0 shows all");
    place.on("plotly_hover", (event) => moveCursor(event.xvals?.[0] ?? event.points[0].x));
    place.on("plotly_unhover", () => moveCursor(null));
    place.on("plotly_relayout", (change) => {
      if (change["xaxis.autorange"]) zoom(null, place);
      else if ("xaxis.range[0]" in change) zoom([change["xaxis.range[0]"], change["xaxis.range[1]"]].map(Number), place, true);
      else if (Array.isArray(change["xaxis.range"])) zoom(change["xaxis.range"].map(Number), place, true);
    });
    place.on("plotly_doubleclick", () => zoom(null, place));
    place.addEventListener("keydown", (event) => press(event, place));
  }

  function moveCursor(step) {
    cursor = step;
    for (const place of drawn.keys()) showCursor(place);
  }

  function showCursor(place) {
    const line = place.querySelector(":scope > .cursor");
    const axis = place._fullLayout?.xaxis;
    if (!line || !axis) return;
    const at = cursor === null ? -1 : axis.d2p(cursor);
    const inside = at >= 0 && at <= axis._length;
    line.style.display = inside ? "block" : "none";
    if (!inside) return;
    const { t, h } = place._fullLayout._size;
    line.style.transform = `translateX(${axis._offset + at}px)`;
    line.style.top = `${t}px`;
    line.style.height = `${h}px`;
  }

  /* `shown`: the place where somebody zoomed shows these steps already. */
  function zoom(wanted, place, shown = false) {
    if (wanted && !wanted.every(Number.isFinite)) return;
    zooms += 1;
    if (!wanted) resets += 1;
    range = wanted;
    if (!range) for (const [each, chart] of whole) drawn.set(each, chart);
    if (!shown) render(place);
    else showCursor(place);
    for (const [each, chart] of drawn) {
      if (each === place || !overSteps(chart)) continue;
      if (near.has(each)) later(each);
      else far.add(each);
    }
    zoomed(range);
  }

  function press(event, place) {
    const axis = place._fullLayout?.xaxis;
    if (!axis || event.ctrlKey || event.metaKey || event.altKey) return;
    const [low, high] = range ?? axis.range.map(Number);
    const width = high - low;
    const moves = { ArrowLeft: -0.01, ArrowRight: 0.01, PageUp: -0.1, PageDown: 0.1 };
    if (event.key in moves) {
      const from = cursor ?? low + width / 2;
      moveCursor(Math.round(Math.min(high, Math.max(low, from + Math.sign(moves[event.key]) * Math.max(1, Math.abs(moves[event.key]) * width)))));
      say(place);
    } else if (event.key === "Home" || event.key === "End") {
      moveCursor(Math.round(event.key === "Home" ? Math.max(0, low) : high));
      say(place);
    } else if (event.key === "+" || event.key === "-") {
      const middle = cursor ?? low + width / 2;
      const half = (width / 2) * (event.key === "+" ? 0.5 : 2);
      zoom([middle - half, middle + half], place);
    } else if (event.key === "0" || event.key === "Escape") {
      zoom(null, place);
    } else {
      return;
    }
    event.preventDefault();
  }

  /* The values nearest to the cursor, for those who hear the page. */
  function say(place) {
    if (!spoken || cursor === null) return;
    const told = [];
    for (const trace of place._fullData ?? []) {
      if (!trace.x?.length || trace.type !== "scatter" || trace.showlegend === false) continue;
      let best = 0;
      for (let i = 1; i < trace.x.length; i += 1) {
        if (Math.abs(trace.x[i] - cursor) < Math.abs(trace.x[best] - cursor)) best = i;
      }
      if (Number.isFinite(trace.y[best])) told.push(`${trace.name} ${Number(trace.y[best]).toPrecision(3)}`);
    }
    spoken.textContent = `step ${cursor}: ${told.slice(0, 8).join(", ")}`;
  }

  function forget(place) {
    due.get(place)?.();
    for (const held of [whole, near, far, due]) held.delete(place);
    seen.unobserve(place);
    if (!drawn.delete(place)) return;
    delete place.dataset.drawn;
    place.querySelector(":scope > .cursor")?.remove(); /* purging takes the listeners, too */
    window.Plotly?.purge(place);
  }

  return {
    draw, forget, overSteps,
    redraw: () => drawn.forEach((chart, place) => draw(place, chart)),
    get range() { return range; },
    get drawn() { return drawn; },
  };
};
