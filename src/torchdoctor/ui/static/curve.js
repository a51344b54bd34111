"use strict";
/* One curve at large: its charts, what to look for in them, and its healthy twin. */
(() => {
  const form = document.getElementById("curve");
  const said = document.getElementById("said");
  const first = document.getElementById("first");
  const shown = document.getElementById("shown");
  const why = form.querySelector(".why");
  const spoken = document.getElementById("spoken");
  const marks = document.getElementById("marks");
  const twin = document.getElementById("twin");
  let drawn = [];
  let told = "";

  const placeOf = (chart) => form.querySelector(`[data-chart="${CSS.escape(chart.name)}"]`);

  function provide(chart, number) {
    if (placeOf(chart)) return;
    const figure = document.createElement("figure");
    const place = document.createElement("div");
    place.className = "chart";
    place.dataset.chart = chart.name;
    place.setAttribute("role", "img");
    figure.append(place);
    const parent = chart.name === "loss" ? first : shown;
    const next = drawn.slice(number + 1).map(placeOf).find((other) => other && parent.contains(other));
    parent.insertBefore(figure, next?.closest("figure") ?? null);
  }

  function draw(chart) {
    const place = placeOf(chart);
    place.setAttribute("aria-label", [chart.title, ...(chart.layout.annotations ?? []).map((note) => note.text)].join("; "));
    const fitting = marking.fit(chart, place);
    Plotly.react(place, fitting.data, charting.dressed(fitting, place.clientWidth), charting.config);
  }

  function show(found, isFirst) {
    form.setAttribute("aria-busy", "false");
    said.className = `verdict ${found.severity}`;
    if (told !== found.said) {
      const focused = said.contains(document.activeElement);
      said.innerHTML = told = found.said; /* made and escaped by our own server */
      if (focused) said.querySelector("button, a")?.focus({ preventScroll: true });
      if (!isFirst) spoken.textContent = found.heard;
    }
    drawn = found.charts;
    const wanted = new Set(drawn.map((chart) => chart.name));
    for (const place of form.querySelectorAll(".chart")) {
      if (!wanted.has(place.dataset.chart)) { Plotly.purge(place); place.closest("figure").remove(); }
    }
    drawn.forEach(provide); /* all of them first: how wide each is hangs on how many there are */
    drawn.forEach(draw);
    if (why) why.hidden = drawn.length < 2;
  }

  /* Who trains the twin wants to see it. */
  form.addEventListener("submit", (event) => { if (twin && event.submitter.value.endsWith(".twin")) twin.checked = true; });
  const ask = follow(form, (stamp) => {
    const query = new URLSearchParams({ since: stamp, marks: String(Number(marks.checked)), twin: String(Number(twin?.checked ?? false)) });
    return `/api/lab/curves/${form.dataset.name}?${query}`;
  }, show);
  for (const box of [marks, twin]) box?.addEventListener("change", ask);
  for (const query of [charting.dark, marking.narrow]) query.addEventListener("change", () => drawn.forEach(draw));
  document.addEventListener("DOMContentLoaded", ask); /* by then Plotly's script has run */
})();
