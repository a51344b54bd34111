"use strict";
/* How charts look, for the report and the live page alike: in the inks of the reader's theme, titles in full. */
const charting = (() => {
  const PAPER = 680; /* pixels between the margins of A4 and of letter */
  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  const inks = () => dark.matches
    ? { ink: "#e6edf3", line: "rgba(230,237,243,0.16)" }
    : { ink: "#1f2328", line: "rgba(31,35,40,0.12)" };
  const config = {
    responsive: true, displaylogo: false, displayModeBar: "hover",
    showSendToCloud: false, plotlyServerURL: "", /* nothing leaves the machine: Plotly 7 offers to upload a chart */
    modeBarButtonsToRemove: ["lasso2d", "select2d", "autoScale2d", "zoom2d", "pan2d"],
  };

  function dressed(chart, width) {
    const { ink, line } = inks();
    const layout = JSON.parse(JSON.stringify(chart.layout));
    for (const name of Object.keys(layout)) {
      if (/^[xy]axis/.test(name)) {
        /* Steps need no room of their own: making it for them draws everything twice. */
        const steps = layout[name].title?.text === "step" ? { automargin: false, tickangle: 0, ...(width < 560 ? { nticks: 4 } : {}) } : { automargin: true };
        if (layout[name].overlaying) layout[name].tickmode = "auto"; /* else at the other axis' places, odd numbers */
        if (layout[name].type === "log") Object.assign(layout[name], { minorloglabels: "complete", nticks: 4, tickformat: "~g" }); /* 0.02, not a small 2, and few of them */
        layout[name] = { gridcolor: line, linecolor: line, zerolinecolor: line, ...steps, ...layout[name] };
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
    layout.margin = { l: 60, r: 20, t: 24 + Math.ceil(1.3 * size) * lines.length, b: 48 + 20 * rows };
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
