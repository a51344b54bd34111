"use strict";
/* Draws the charts that the page holds as they come into view. */
(() => {
  const held = JSON.parse(document.getElementById("charts").textContent);

  function draw(place) {
    const chart = held[place.dataset.run][place.dataset.chart];
    if (chart.layout.height) place.style.height = `${chart.layout.height}px`;
    Plotly.newPlot(place, chart.data, charting.dressed(chart, place.clientWidth), charting.config);
    place.dataset.drawn = "1";
  }

  const places = [...document.querySelectorAll(".chart")];
  const seen = new IntersectionObserver((entries) => {
    for (const entry of entries) {
      if (entry.isIntersecting && !entry.target.dataset.drawn) draw(entry.target);
    }
  }, { rootMargin: "400px" });
  places.forEach((place) => seen.observe(place));
  charting.dark.addEventListener("change", () => places.filter((p) => p.dataset.drawn).forEach(draw));
  window.addEventListener("beforeprint", () => places.filter((p) => !p.dataset.drawn).forEach(draw));
  charting.onPaper(() => places);
})();
