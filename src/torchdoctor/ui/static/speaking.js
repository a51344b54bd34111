"use strict";
/* What charts tell those who hear the page: their values at a step, or one after the other. */
const speaking = (() => {
  const MOST = 8; /* values in one sentence */
  const ENDS = 3; /* rows of a map that are told, beside the smallest */
  const NEAR = 1; /* steps */
  const places = new WeakMap(); /* chart -> [line, point] where somebody stands in it */
  const number = (value) => (typeof value === "number" ? String(Number(value.toPrecision(3))) : String(value).replace(/<[^>]*>/g, " "));
  const has = (value) => (typeof value === "number" ? Number.isFinite(value) : value !== null && value !== undefined);
  const shown = (place) => (place._fullData ?? []).filter((trace) => trace.visible === true);

  function nearest(steps, step) {
    let best = 0;
    for (let i = 1; i < steps.length; i += 1) {
      if (Math.abs(steps[i] - step) < Math.abs(steps[best] - step)) best = i;
    }
    return best;
  }

  /* Of a layer over a map: the rows that it marks there, or beside there, as some of its columns are left clear. */
  function marked(trace, column) {
    const word = /<br>([^<%]+)<extra>/.exec(trace.hovertemplate ?? "")?.[1];
    const names = [...trace.y].filter((_, row) => [column - 1, column, column + 1].some((at) => Number.isFinite(trace.z[row]?.[at])));
    const more = names.length > ENDS ? ` and ${names.length - ENDS} more` : "";
    return word && names.length ? [`${word}: ${names.slice(0, ENDS).join(", ")}${more}`] : [];
  }

  /* Of a map with many rows: the largest few, and the smallest. */
  function rows(trace, column) {
    if (trace.showscale === false) return marked(trace, column);
    const values = [...trace.y].map((name, row) => [String(name), trace.z[row]?.[column]]).filter(([, value]) => Number.isFinite(value));
    if (!values.length) return [];
    const what = trace.colorbar?.title?.text;
    const told = ([name, value]) => `${name} ${number(value)}`;
    const many = values.length > ENDS + 1;
    if (many) values.sort((a, b) => b[1] - a[1]);
    const said = (many ? values.slice(0, ENDS) : values).map(told).join(", ");
    return [`${what ? `${what}: ` : ""}${many ? "largest " : ""}${said}${many ? `; smallest ${told(values.at(-1))}` : ""}`];
  }

  function atStep(place, step) {
    const told = [];
    for (const trace of shown(place)) {
      if (!trace.x?.length) continue;
      const at = nearest(trace.x, step);
      if (trace.mode === "markers" && Math.abs(trace.x[at] - step) > NEAR) continue; /* single places, elsewhere */
      if (trace.type === "heatmap") told.push(...rows(trace, at));
      else if (trace.type === "scatter" && trace.showlegend !== false && Number.isFinite(trace.y[at])) told.push(`${trace.name} ${number(trace.y[at])}`);
    }
    return told.slice(0, MOST).join(", ") || "no value";
  }

  /* What can be walked through: each curve, each group of bars, each named row of a map. */
  function lines(place) {
    const found = [];
    for (const trace of shown(place)) {
      const { type, name, x, y, z } = trace;
      if (type === "heatmap" && typeof y?.[0] === "string") {
        if (trace.showscale === false) continue; /* marks over the map */
        [...y].forEach((row, r) => found.push({ name: row, length: z[r]?.length ?? 0, at: (i) => [x?.[i] ?? i, z[r][i]] }));
      } else if ((type === "bar" || (type === "scatter" && trace.showlegend !== false)) && x?.length && y?.length) {
        const lying = type === "bar" && trace.orientation === "h";
        found.push({ name: /^trace \d+$/.test(name) ? "" : name, length: x.length, at: (i) => (lying ? [y[i], x[i]] : [x[i], y[i]]) });
      }
    }
    return found.filter((line) => line.length);
  }

  /* Moves by a key and tells where that leads; null where the key is for something else. */
  function walk(place, key) {
    const all = lines(place);
    const moves = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0], Home: [0, -Infinity], End: [0, Infinity] };
    if (!all.length || !(key in moves)) return null;
    const [line, point] = places.get(place) ?? [0, key === "ArrowRight" ? -1 : 0];
    const within = (value, most) => Math.min(Math.max(value, 0), most - 1);
    const next = within(line + moves[key][0], all.length);
    const stop = within(point + moves[key][1], all[next].length);
    places.set(place, [next, stop]);
    const [at, value] = all[next].at(stop);
    const name = all.length > 1 ? `${number(all[next].name)}, ` : "";
    return `${name}${number(at)}: ${has(value) ? number(value) : "no value"}`;
  }

  return { atStep, lines, walk };
})();
