"use strict";
/* A station: every change of a choice asks for a new result; one that was kept stays behind the new ones in grey. */
(() => {
  const station = document.getElementById("station");
  const controls = document.getElementById("controls");
  const said = document.getElementById("said");
  const shown = document.getElementById("shown");
  const hint = document.getElementById("hint");
  const spoken = document.getElementById("spoken");
  const presets = station.querySelectorAll(".preset");
  const keep = document.getElementById("keep");
  const address = `/api/lab/${station.dataset.name}`;
  const PAUSE = 60; /* milliseconds that a slider may go on moving */
  let asked = null;
  let timer = 0;
  let last = null;
  let kept = null;

  function choices() {
    const chosen = new URLSearchParams();
    for (const control of controls.elements) {
      if (control.name) chosen.set(control.name, control.type === "checkbox" ? String(Number(control.checked)) : control.value);
    }
    return chosen;
  }

  function label() {
    for (const output of controls.querySelectorAll("output")) {
      const slider = document.getElementById(output.htmlFor[0]);
      output.value = slider.dataset.log ? Number(10 ** Number(slider.value)).toPrecision(2).replace(/\.?0+$/, "").replace(/e([+-])0?/, "e$1") : slider.value;
    }
    const now = choices();
    for (const preset of presets) {
      const wanted = JSON.parse(preset.dataset.choices);
      preset.setAttribute("aria-pressed", String(Object.entries(wanted).every(([name, value]) => now.get(name) === String(value))));
    }
  }

  function choose(wanted) {
    for (const control of controls.elements) {
      if (!(control.name in wanted)) continue;
      if (control.type === "checkbox") control.checked = Boolean(Number(wanted[control.name]));
      else control.value = wanted[control.name];
    }
    changed(0);
  }

  function changed(pause) {
    label();
    clearTimeout(timer);
    timer = setTimeout(ask, pause);
  }

  async function ask() {
    asked?.abort();
    const mine = (asked = new AbortController());
    const chosen = choices();
    history.replaceState(null, "", `?${chosen}`);
    station.setAttribute("aria-busy", "true");
    try {
      const answer = await fetch(`${address}?${chosen}`, { signal: mine.signal });
      if (!answer.ok) throw new Error(await answer.text());
      show(await answer.json());
    } catch (error) {
      if (mine.signal.aborted) return;
      said.className = "verdict waiting";
      said.textContent = error instanceof TypeError ? "The server does not answer." : error.message;
    }
    if (asked === mine) station.setAttribute("aria-busy", "false");
  }

  function show(found) {
    last = found;
    said.className = `verdict ${found.severity}`;
    said.innerHTML = found.said; /* made and escaped by our own server */
    spoken.textContent = found.heard;
    const wanted = new Set(found.charts.map((chart) => chart.name));
    for (const place of [...shown.querySelectorAll(".chart")]) {
      if (!wanted.has(place.dataset.chart)) { Plotly.purge(place); place.closest("figure").remove(); }
    }
    found.charts.forEach(provide); /* all of them first: how wide each is hangs on how many there are */
    found.charts.forEach(draw);
  }

  const placeOf = (chart) => shown.querySelector(`[data-chart="${CSS.escape(chart.name)}"]`);

  function provide(chart) {
    if (placeOf(chart)) return;
    const figure = document.createElement("figure");
    const place = document.createElement("div");
    place.className = "chart";
    place.dataset.chart = chart.name;
    place.setAttribute("role", "img");
    figure.append(place);
    shown.append(figure);
  }

  function draw(chart) {
    const place = placeOf(chart);
    place.setAttribute("aria-label", chart.title);
    place.classList.toggle("tall", Boolean(chart.tall));
    Plotly.react(place, [...behind(chart), ...chart.data], charting.dressed(chart, place.clientWidth), charting.config);
  }

  /* Of the result that was kept: its curves in grey, without what fills areas. */
  function behind(chart) {
    const old = kept?.charts.find((each) => each.name === chart.name);
    const curves = (old?.data ?? []).filter((trace) => trace.type === "scatter" && trace.showlegend !== false && !trace.fill);
    return curves.map((trace) => ({
      ...trace, name: `kept: ${trace.name}`, opacity: 0.7,
      line: { ...trace.line, color: "#7F7F7F" }, marker: { ...trace.marker, color: "#7F7F7F" },
    }));
  }

  controls.addEventListener("input", () => changed(PAUSE));
  controls.addEventListener("submit", (event) => event.preventDefault());
  for (const preset of presets) {
    preset.addEventListener("click", () => {
      hint.textContent = preset.dataset.text;
      choose(JSON.parse(preset.dataset.choices));
    });
  }
  keep.addEventListener("click", () => {
    kept = kept ? null : last;
    keep.setAttribute("aria-pressed", String(Boolean(kept)));
    keep.textContent = kept ? "Forget what was kept" : "Keep to compare";
    last?.charts.forEach(draw);
  });
  charting.dark.addEventListener("change", () => last?.charts.forEach(draw));
  label();
  document.addEventListener("DOMContentLoaded", ask); /* by then Plotly's script has run */
})();
