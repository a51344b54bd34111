"use strict";
/* Words that point into a curve. A phone has no room for them there: it gets numbers, and the words below the chart. */
const marking = (() => {
  const narrow = window.matchMedia("(max-width: 560px)");

  function write(place, words) {
    const figure = place.closest("figure");
    figure.querySelector(".marks")?.remove();
    if (!words.length) return;
    const list = document.createElement("ol");
    list.className = "marks";
    for (const text of words) {
      const entry = document.createElement("li");
      entry.textContent = text;
      list.append(entry);
    }
    figure.append(list);
  }

  /* The chart as it fits into the window. */
  function fit(chart, place) {
    const notes = chart.layout.annotations ?? [];
    const marks = narrow.matches ? notes.filter((note) => note.showarrow) : [];
    write(place, marks.map((note) => note.text));
    if (!marks.length) return chart;
    const numbered = (note) => ({ ...note, text: `<b>${marks.indexOf(note) + 1}</b>`, xanchor: note.ax ? "left" : "center", font: { ...note.font, size: 15 } });
    return { ...chart, layout: { ...chart.layout, annotations: notes.map((note) => (note.showarrow ? numbered(note) : note)) } };
  }

  return { fit, narrow };
})();
