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
  const LEAST = 2; /* steps: a closer look shows nothing more */
  const drawn = new Map(); /* place -> chart */
  const extents = new Map(); /* place -> the first and the last step that it has */
  const keyed = new WeakSet(); /* places that listen to keys */
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
    if (range === null && overSteps(chart)) extents.set(place, extentOf(place));
    listen(place);
    showCursor(place);
  }

  function extentOf(place) {
    let [low, high] = [Infinity, -Infinity];
    for (const trace of place._fullData ?? []) {
      for (const step of trace.x ?? []) {
        if (step < low) low = step;
        if (step > high) high = step;
      }
    }
    return low <= high ? [low, high] : null;
  }

  function listen(place) {
    const steps = overSteps(drawn.get(place));
    if (!steps && !speaking.lines(place).length) return;
    if (!keyed.has(place)) place.addEventListener("keydown", (event) => press(event, place));
    keyed.add(place);
    place.tabIndex = 0;
    place.setAttribute("role", "application");
    place.setAttribute("aria-roledescription", steps ? "chart over steps" : "chart");
    place.setAttribute("aria-description", steps ? "arrow keys move the cursor, plus and minus zoom, 0 shows all, S saves a picture" : "arrow keys tell its values, S saves a picture");
    if (!steps || place.querySelector(":scope > .cursor")) return;
    const line = document.createElement("div");
    line.className = "cursor";
    place.append(line);
    place.on("plotly_hover", (event) => moveCursor(event.xvals?.[0] ?? event.points[0].x));
    place.on("plotly_unhover", () => moveCursor(null));
    place.on("plotly_relayout", (change) => {
      if (change["xaxis.autorange"]) zoom(null, place);
      else if ("xaxis.range[0]" in change) zoom([change["xaxis.range[0]"], change["xaxis.range[1]"]].map(Number), place, true);
      else if (Array.isArray(change["xaxis.range"])) zoom(change["xaxis.range"].map(Number), place, true);
    });
    place.on("plotly_doubleclick", () => zoom(null, place));
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
    if (!drawn.has(place) || event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "s" || event.key === "S") {
      Plotly.downloadImage(place, { format: "png", filename: drawn.get(place).name });
    } else if (!overSteps(drawn.get(place))) {
      const told = speaking.walk(place, event.key);
      if (told === null) return;
      say(told);
    } else if (!axis || !pressOverSteps(event.key, place, range ?? extents.get(place) ?? axis.range.map(Number))) {
      return;
    }
    event.preventDefault();
  }

  /* Whether the key was for the chart. */
  function pressOverSteps(key, place, [low, high]) {
    const width = high - low;
    const moves = { ArrowLeft: -0.01, ArrowRight: 0.01, PageUp: -0.1, PageDown: 0.1, Home: -Infinity, End: Infinity };
    const middle = cursor ?? low + width / 2;
    if (key in moves) {
      const to = middle + Math.sign(moves[key]) * Math.max(1, Math.abs(moves[key]) * width);
      moveCursor(Math.round(Math.min(high, Math.max(low, to))));
      say(`step ${cursor}: ${speaking.atStep(place, cursor)}`);
    } else if (key === "+") {
      show(within([low, high], middle, Math.min(width, Math.max(LEAST, width / 2))), place);
    } else if (key === "-") {
      const all = extents.get(place) ?? [-Infinity, Infinity];
      show(2 * width < all[1] - all[0] ? within(all, middle, 2 * width) : null, place);
    } else if (key === "0" || key === "Escape") {
      show(null, place);
    } else {
      return false;
    }
    return true;
  }

  /* So many steps around one, moved inside those that there are. */
  function within([first, last], middle, width) {
    const low = Math.min(Math.max(middle - width / 2, first), last - width);
    return [low, low + width];
  }

  function show(wanted, place) {
    zoom(wanted, place);
    const [low, high] = wanted ?? extents.get(place) ?? [];
    if (low !== undefined) say(`${wanted ? "steps" : "all steps,"} ${Math.round(low)} to ${Math.round(high)}`);
  }

  function say(text) {
    if (spoken) spoken.textContent = text;
  }

  function forget(place) {
    due.get(place)?.();
    for (const held of [whole, near, far, due, extents]) held.delete(place);
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
