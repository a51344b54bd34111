"use strict";
/* Another run has norms of another size, so that its slider has other ends: the page is opened anew. */
document.getElementById("c-run")?.addEventListener("input", (event) => {
  event.stopPropagation();
  location.search = new URLSearchParams({ run: event.target.value });
});
