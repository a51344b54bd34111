"use strict";
/* Two runs: the page holds its charts; they share cursor and zoom. */
(() => {
  const held = JSON.parse(document.getElementById("charts").textContent);
  const link = linked(() => {});
  for (const place of document.querySelectorAll(".chart")) link.draw(place, held[place.dataset.chart]);
  charting.dark.addEventListener("change", () => link.redraw());
})();
