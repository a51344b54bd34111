"use strict";
/* How charts look, for the report and the live page alike: in the inks of the reader's theme, titles in full. */
const charting = (() => {
  const PAPER = 680; /* pixels between the margins of A4 and of letter */
  const COLUMNS = 12; /* names of layers that stand side by side */
  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  const inks = () => dark.matches
    ? { ink: "#e6edf3", line: "rgba(230,237,243,0.16)" }
    : { ink: "#1f2328", line: "rgba(31,35,40,0.12)" };
  /* Colours by their name, on light and on dark paper, as plots/palette.py has them: a test compares the two. */
  const INKS = {
    "lines": [
      ["#0072B2", "#0072B2", "#3D94D1"],
      ["#E69F00", "#BF8300", "#E69F00"],
      ["#009E73", "#009E73", "#1DB386"],
      ["#D55E00", "#D55E00", "#E8762B"],
      ["#CC79A7", "#C0689A", "#CC79A7"],
      ["#56B4E9", "#2F8FC8", "#8CCBF2"],
      ["#7F7F7F", "#767676", "#8C8C8C"],
      ["#FDFDFD", "#FFFFFF", "#0D1117"]
    ],
    "texts": [
      ["#0072B2", "#0067A1", "#79B8EB"],
      ["#E69F00", "#8A5D00", "#F0B93A"],
      ["#009E73", "#00704F", "#3FD0A4"],
      ["#D55E00", "#B3430A", "#FF9D6B"],
      ["#CC79A7", "#98487A", "#E3A6C8"],
      ["#56B4E9", "#0A6AA1", "#6CC1F5"],
      ["#7F7F7F", "#59636E", "#9198A1"]
    ]
  };
  const BEHIND_TEXTS = "#FDFDFD"; /* paper by its name only: what is white is meant to be white on dark paper, too */
  const WORDED = /^((text|tick|insidetext|outsidetext)?font)$/;
  const FAINT = /^rgba\((\d+), ?(\d+), ?(\d+), ?([\d.]+)\)$/;
  const known = Object.fromEntries(Object.entries(INKS).map(([kind, rows]) => [kind, new Map(rows.flatMap(
    (row) => (row[0] === BEHIND_TEXTS ? row.slice(0, 1) : row).map((colour) => [colour.toUpperCase(), row])))]));
  const config = {
    responsive: true, displaylogo: false, displayModeBar: "hover",
    showSendToCloud: false, plotlyServerURL: "", /* nothing leaves the machine: Plotly 7 offers to upload a chart */
    modeBarButtonsToRemove: ["lasso2d", "select2d", "autoScale2d", "zoom2d", "pan2d"],
  };

  function ink(colour, kind) {
    const faint = FAINT.exec(colour);
    const name = faint ? "#" + faint.slice(1, 4).map((part) => Number(part).toString(16).padStart(2, "0")).join("") : colour;
    const row = known[kind].get(name.toUpperCase());
    if (!row) return colour;
    const found = row[dark.matches ? 2 : 1];
    return faint ? `rgba(${[1, 3, 5].map((at) => parseInt(found.slice(at, at + 2), 16)).join(", ")}, ${faint[4]})` : found;
  }

  /* In place, so that traces are painted anew when the theme changes: any ink of a colour leads to the others. Numbers
     and long lists, which hold no colours, are passed by. */
  function paint(part, kind = "lines") {
    for (const [key, value] of Object.entries(part)) {
      if (typeof value === "string") { if (value[0] === "#" || value[0] === "r") part[key] = ink(value, kind); }
      else if (value && typeof value === "object" && !ArrayBuffer.isView(value) && !value.bdata && !(value.length > 64)) {
        paint(value, WORDED.test(key) ? "texts" : kind);
      }
    }
    return part;
  }

  function dressed(chart, width) {
    const { ink, line } = inks();
    const layout = paint(JSON.parse(JSON.stringify(chart.layout)));
    paint(chart.data);
    for (const name of Object.keys(layout)) {
      if (/^[xy]axis/.test(name)) {
        /* Steps need no room of their own: making it for them draws everything twice. */
        const steps = layout[name].title?.text === "step" ? { automargin: false, tickangle: 0, ...(width < 560 ? { nticks: 4 } : {}) } : { automargin: true };
        if (layout[name].overlaying) layout[name].tickmode = "auto"; /* else at the other axis' places, odd numbers */
        if (layout[name].type === "log") layout[name].nticks = 4;
        layout[name] = { gridcolor: line, linecolor: line, zerolinecolor: line, exponentformat: "power", ...steps, ...layout[name] };
      }
    }
    const size = width < 560 ? 13 : 15;
    const letters = Math.max(24, Math.floor(width / (size * 0.54)));
    const lines = fold(chart.title, letters);
    layout.title = { text: lines.join("<br>"), x: 0, xanchor: "left", font: { size }, yref: "container", y: 1, yanchor: "top", pad: { t: 10 + Math.ceil(0.65 * size) * (lines.length - 1) } }; /* Plotly centres several lines where one would stand */
    layout.paper_bgcolor = layout.plot_bgcolor = "rgba(0,0,0,0)";
    layout.font = { color: ink, family: "system-ui, sans-serif", size: 12 };
    const rows = legendRows(chart, width);
    layout.legend = { ...layout.legend, x: 0, y: 0, yref: "container", yanchor: "bottom" };
    const remark = layout.annotations?.some((note) => note.yref === "paper" && note.yanchor === "bottom") ? 10 : 0;
    layout.margin = { l: 60, r: 20, t: 24 + remark + Math.ceil(1.3 * size) * lines.length, b: 48 + 20 * rows };
    const columns = layout.xaxis?.type === "category" ? chart.data[0]?.x : null;
    if (Array.isArray(columns) && columns.length > COLUMNS) { /* the same below: names stand upright, as many as fit */
      Object.assign(layout.xaxis, { automargin: false, tickangle: -90, nticks: Math.max(2, Math.floor((width - 100) / 16)) });
      layout.margin.b += 6.4 * Math.max(...columns.map((name) => String(name).length));
    }
    if (layout.yaxis2?.side === "right") {
      for (const axis of [layout.yaxis, layout.yaxis2]) axis.automargin = false;
      layout.margin.r = 64;
    }
    const names = layout.yaxis?.type === "category" && !layout.yaxis.title ? chart.data[0]?.y : null;
    if (Array.isArray(names)) { /* room for them, told beforehand: finding out by drawing takes twice as long */
      layout.yaxis.automargin = false;
      if (width < 560) layout.xaxis.nticks = 2;
      layout.margin.l = Math.min(width / 2, 20 + 6.8 * Math.max(...names.map((name) => String(name).length)));
    }
    return layout;
  }

  /* Room for the legend below the axis' title: Plotly would put one over the other. */
  function legendRows(chart, width) {
    const named = chart.data.filter((trace) => trace.name && trace.showlegend !== false && trace.type !== "heatmap");
    if (named.length < 2) return 0;
    const longest = Math.max(...named.map((trace) => trace.name.length));
    return Math.ceil(named.length / Math.max(1, Math.floor((width - 80) / (50 + 6.5 * longest))));
  }

  function fold(text, letters) {
    const lines = [""];
    for (const word of text.replace(/</g, "&lt;").split(" ")) {
      if ((lines.at(-1) + " " + word).length > letters && lines.at(-1)) lines.push(word);
      else lines[lines.length - 1] = (lines.at(-1) + " " + word).trim();
    }
    return lines.slice(0, 3);
  }

  /* On paper charts are as wide as the paper; `places` gives those that are drawn by then. */
  function onPaper(places) {
    const sized = (width) => [...places()].forEach((p) => Plotly.relayout(p, width ? { width, autosize: false } : { width: null, autosize: true }));
    window.addEventListener("beforeprint", () => sized(PAPER));
    window.addEventListener("afterprint", () => sized(null));
  }

  return { dark, config, dressed, onPaper };
})();
