"use strict";
/* A station: every change of a choice asks for a new result; one that was kept stays behind the new ones in grey.
   A result may have frames: moments of a training, walked through by a slider or as a film. */
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
  const player = document.getElementById("player");
  const play = document.getElementById("play");
  const frame = document.getElementById("frame");
  const moment = document.getElementById("moment");
  const still = window.matchMedia("(prefers-reduced-motion: reduce)");
  const KEPT = "#7F7F7F";
  const PAUSE = 60; /* milliseconds that a slider may go on moving */
  const FILM = 6000; /* milliseconds that a film takes, with at least FASTEST for a frame */
  const FASTEST = 50;
  let asked = null;
  let timer = 0;
  let last = null;
  let kept = null;
  let film = 0;

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
      output.value = slider.dataset.log ? String(Number((10 ** Number(slider.value)).toPrecision(3))) : slider.value;
      slider.setAttribute("aria-valuetext", output.value); /* else the power of ten is read out */
    }
    const now = choices();
    let text = "Begin with one of these, then change what you like.";
    for (const preset of presets) {
      const wanted = JSON.parse(preset.dataset.choices);
      const chosen = Object.entries(wanted).every(([name, value]) => now.get(name) === String(value));
      preset.setAttribute("aria-pressed", String(chosen));
      if (chosen) text = preset.dataset.text;
    }
    if (hint && hint.textContent !== text) hint.textContent = text;
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
    const wasLast = !last?.frames || Number(frame.value) === Number(frame.max);
    last = found;
    said.className = `verdict ${found.severity}`;
    said.innerHTML = found.said; /* made and escaped by our own server */
    spoken.textContent = found.heard;
    const wanted = new Set(found.charts.map((chart) => chart.name));
    for (const place of [...shown.querySelectorAll(".chart")]) {
      if (!wanted.has(place.dataset.chart)) { Plotly.purge(place); place.closest("figure").remove(); }
    }
    found.charts.forEach(provide); /* all of them first, in order: how wide each is hangs on how many there are */
    offer(found.frames, wasLast);
    found.charts.forEach(draw);
  }

  /* The slider for the frames of a result; it stays where it stands, or at the end. */
  function offer(frames, atEnd) {
    const many = frames && frames.at.length > 1;
    player.hidden = !many;
    if (!many) return stop();
    frame.max = String(frames.at.length - 1);
    if (atEnd && !film) frame.value = frame.max;
    tell();
  }

  function tell() {
    const at = last.frames.at;
    const said = `${at[Number(frame.value)]} of ${at.at(-1)}`;
    moment.textContent = `Step ${said}`;
    frame.setAttribute("aria-valuetext", `step ${said}`);
  }

  function walk() {
    tell();
    const moving = new Set([...last.frames.moving.map((each) => each.chart), ...Object.keys(last.frames.titles)]);
    for (const chart of last.charts) {
      if (moving.has(chart.name)) draw(chart);
      else point(placeOf(chart));
    }
  }

  function start() {
    if (still.matches) return;
    if (frame.value === frame.max) frame.value = "0";
    play.textContent = "Pause";
    let before = performance.now();
    const next = (now) => {
      film = requestAnimationFrame(next);
      if (now - before < Math.max(FASTEST, FILM / last.frames.at.length)) return;
      before = now;
      frame.value = String(Number(frame.value) + 1);
      walk();
      if (frame.value === frame.max) stop();
    };
    film = requestAnimationFrame(next);
    walk();
  }

  function stop() {
    cancelAnimationFrame(film);
    film = 0;
    play.textContent = "Play";
  }

  /* The chart as it is at the chosen frame. */
  function framed(chart) {
    const frames = player.hidden ? null : last.frames;
    if (!frames) return chart;
    const now = Number(frame.value);
    const data = [...chart.data];
    for (const each of frames.moving) {
      if (each.chart === chart.name) data[each.trace] = { ...data[each.trace], ...each.frames[now] };
    }
    return { ...chart, data, title: frames.titles[chart.name]?.[now] ?? chart.title };
  }

  /* The line that shows in charts over the steps where the frame stands. */
  function point(place) {
    const axis = place._fullLayout?.xaxis;
    const line = place.querySelector(":scope > .cursor");
    const shown = !player.hidden && axis && axis.title.text === last.frames.axis;
    if (!line || !shown) { if (line) line.style.display = "none"; return; }
    const { t, h } = place._fullLayout._size;
    line.style.display = "block";
    line.style.transform = `translateX(${axis._offset + axis.d2p(last.frames.at[Number(frame.value)])}px)`;
    line.style.top = `${t}px`;
    line.style.height = `${h}px`;
  }

  /* A click into a chart over the steps goes to the frame nearest to it. */
  function go(place, event) {
    const axis = place._fullLayout?.xaxis;
    if (player.hidden || axis?.title.text !== last.frames.axis) return;
    const step = axis.p2d(event.clientX - place.getBoundingClientRect().left - axis._offset);
    const far = last.frames.at.map((at) => Math.abs(at - step));
    stop();
    frame.value = String(far.indexOf(Math.min(...far)));
    walk();
  }

  const placeOf = (chart) => shown.querySelector(`[data-chart="${CSS.escape(chart.name)}"]`);

  function provide(chart) {
    const figure = placeOf(chart)?.closest("figure") ?? make(chart);
    figure.classList.toggle("wide", Boolean(chart.wide));
    figure.firstChild.classList.toggle("tall", Boolean(chart.tall));
    shown.append(figure);
  }

  function make(chart) {
    const figure = document.createElement("figure");
    const place = document.createElement("div");
    place.className = "chart";
    place.dataset.chart = chart.name;
    place.setAttribute("role", "img");
    const line = document.createElement("div");
    line.className = "cursor";
    place.append(line);
    place.addEventListener("click", (event) => go(place, event));
    figure.append(place);
    return figure;
  }

  function draw(one) {
    const chart = framed(one);
    const place = placeOf(chart);
    place.setAttribute("aria-label", chart.title);
    Plotly.react(place, [...behind(chart), ...chart.data], charting.dressed(chart, place.clientWidth), charting.config)
      .then(() => settle(place));
  }

  function settle(place) {
    if (!place.isConnected) return; /* a newer result has no such chart */
    if (!place.dataset.watched) place.on("plotly_afterplot", () => point(place));
    place.dataset.watched = "1";
    if (place._fullLayout.width !== place.clientWidth) Plotly.Plots.resize(place); /* it had other neighbours */
    point(place);
  }

  /* Of the result that was kept: its curves in grey, without what fills areas, and the outlines of its bars. */
  function behind(chart) {
    const old = kept?.charts.find((each) => each.name === chart.name);
    const drawn = (old?.data ?? []).filter((trace) => trace.showlegend !== false && !trace.fill);
    const curves = drawn.filter((trace) => trace.type === "scatter").map((trace) => ({
      ...trace, name: `kept: ${trace.name}`, opacity: 0.7,
      line: { ...trace.line, color: KEPT }, marker: { ...trace.marker, color: KEPT },
    }));
    const outlines = drawn.filter((trace) => trace.type === "bar" && trace.orientation !== "h").map(({ name, x, y }, number) => ({
      type: "scatter", mode: "lines", name: `kept: ${name}`, x, y, line: { color: KEPT, width: 1.5, shape: "hvh", dash: ["solid", "dot"][number % 2] },
    }));
    return [...curves, ...outlines];
  }

  controls.addEventListener("input", () => changed(PAUSE));
  controls.addEventListener("submit", (event) => event.preventDefault());
  for (const preset of presets) {
    preset.addEventListener("click", () => choose(JSON.parse(preset.dataset.choices)));
  }
  keep.addEventListener("click", () => {
    kept = kept ? null : last;
    keep.setAttribute("aria-pressed", String(Boolean(kept)));
    keep.textContent = kept ? "Forget what was kept" : "Keep to compare";
    last?.charts.forEach(draw);
  });
  play.addEventListener("click", () => (film ? stop() : start()));
  frame.addEventListener("input", () => { stop(); walk(); });
  charting.dark.addEventListener("change", () => last?.charts.forEach(draw));
  label();
  document.addEventListener("DOMContentLoaded", ask); /* by then Plotly's script has run */
})();
